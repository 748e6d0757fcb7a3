//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// A programmable HTTP gateway: chains of sandboxed WebAssembly plugins for
/// each route, swapped live.
#[derive(Debug, Parser)]
#[command(name = "weir", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve, and change what is served whenever the files change.
    Run(Run),
    /// Check a configuration, its plugins included. Opens no socket.
    Check(Common),
}

#[derive(Debug, clap::Args)]
pub struct Common {
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = "weir.yaml")]
    pub config: PathBuf,
    /// Where compiled plugins are kept [default: $XDG_CACHE_HOME/weir].
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct Run {
    #[command(flatten)]
    pub common: Common,
    /// Take the time for plugins from a file that holds milliseconds, for
    /// tests.
    #[arg(long, value_name = "FILE", hide = true)]
    pub test_clock: Option<PathBuf>,
    /// Run so that instructions can be counted: no ticks, little address space.
    #[arg(long, hide = true)]
    pub count_mode: bool,
}

impl Common {
    /// Where compiled plugins are kept.
    pub fn cache_root(&self) -> PathBuf {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        self.cache_dir
            .clone()
            .or_else(|| Some(from("XDG_CACHE_HOME")?.join("weir")))
            .or_else(|| Some(from("HOME")?.join(".cache/weir")))
            .unwrap_or_else(|| std::env::temp_dir().join("weir"))
    }
}
