//! The `matrix` command.
fn main() {}
