//! fermata-audit
