//! fermata-pool
