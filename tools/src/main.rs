//! The binary `blockyard`: parses, calls, prints, and exits with a documented code.

use std::process::ExitCode;

use blockyard_tools::{cli::Cli, commands};
use clap::Parser;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fail) => {
            if !matches!(fail, blockyard_tools::fail::Fail::OutOfMemory) {
                blockyard_tools::fail::say(format_args!("blockyard: {fail}"));
            }
            ExitCode::from(fail.code())
        }
    }
}
