//! The `petrel` executable: hands its arguments to `cli` and exits with its status.

#[cfg(feature = "jemalloc")]
mod allocator;

fn main() {
    std::process::exit(petrel::cli::run());
}
