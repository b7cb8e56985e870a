//! `petrel send`.

/// Options.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it; returns the exit status.
pub fn run(args: Args) -> i32 {
    let Args {} = args;
    super::super::usage(&["send comes with a later version".to_owned()])
}
