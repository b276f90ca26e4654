//! fermata-client
