//! The crocevia command.
fn main() {}
