//! fermata-server
