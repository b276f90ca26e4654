//! fermata-api
