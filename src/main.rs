//! The `petrel` executable: hands its arguments to `cli` and exits with its status.

fn main() {}
