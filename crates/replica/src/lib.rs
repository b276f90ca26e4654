//! fermata-replica
