//! fermata-calendar
