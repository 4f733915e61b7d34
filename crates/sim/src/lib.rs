//! The world as a value.
#![forbid(unsafe_code)]
