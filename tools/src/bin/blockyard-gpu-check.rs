//! The binary `blockyard-gpu-check`: puts a CUDA device through every check and writes one page of Markdown.

use std::process::ExitCode;

use blockyard_tools::gpu_check::{Options, run};
use clap::Parser;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fail) => {
            blockyard_tools::fail::say(format_args!("blockyard-gpu-check: {fail}"));
            ExitCode::from(fail.code())
        }
    }
}
