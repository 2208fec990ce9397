//! The binary `blockyard`.
fn main() {}
