//! The process's edge: arguments, log, threads, signals, exit code.

use std::{process::ExitCode, sync::Arc};

use clap::{Parser, error::ErrorKind};
use weir::{
    cli::{Cli, Command, Common},
    clock::Clock,
    logging,
    metrics::Metrics,
    process, reload,
    state::{Quota, State},
};

mod allocator;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// Exit codes, as sysexits(3) has them where it has one.
const FAILURE: u8 = 1;
const USAGE: u8 = 2;
const BAD_CONFIG: u8 = 78;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if asked_for { ExitCode::SUCCESS } else { ExitCode::from(USAGE) };
        }
    };
    if let Err(why) = logging::init() {
        eprintln!("weir: {why}");
        return ExitCode::from(USAGE);
    }
    let outcome = match cli.command {
        Command::Run(run) => process::run(&run),
        Command::Check(common) => check(&common),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(process::Failure::Config(errors)) => {
            eprintln!("{errors}");
            ExitCode::from(BAD_CONFIG)
        }
        Err(process::Failure::Listen(errors)) => {
            eprintln!("{errors}");
            ExitCode::from(FAILURE)
        }
        Err(process::Failure::Other(why)) => {
            eprintln!("weir: {why}");
            ExitCode::from(FAILURE)
        }
    }
}

/// Builds everything, and throws it away.
fn check(common: &Common) -> Result<(), process::Failure> {
    let mut plugins = process::plugins(
        common,
        false,
        Arc::new(State::new(Quota::default())),
        Arc::new(Clock::system()),
        Arc::new(Metrics::new(1)),
    )?;
    let gateway = reload::build(&common.config, 1, &mut plugins).map_err(process::Failure::Config)?;
    let (routes, uses) = (gateway.config.routes.len(), gateway.uses().len());
    println!("{}: ok, {routes} routes, {uses} plugin configurations", common.config.display());
    Ok(())
}
