//! Builds the plugins that come with the gateway, so that they are in the binary.
//!
//! Each crate of `plugins/` is compiled for WebAssembly in a target folder of its
//! own, made a component, and listed in `builtins.rs` under the output folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, exit},
};

use wit_component::ComponentEncoder;

/// Imports no WASI: such components are a third smaller than `wasm32-wasip2`'s.
const TARGET: &str = "wasm32-unknown-unknown";
const PROFILE: &str = "guest";
/// A smaller stack means fewer pages to reset in a fresh instance.
const STACK: &str = "-zstack-size=65536";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() {
    if let Err(error) = build() {
        for line in error.to_string().lines() {
            println!("cargo::error={line}");
        }
        exit(1);
    }
}

fn build() -> Result<()> {
    let workspace = workspace()?;
    for input in ["plugins", "sdk/rust", "wit", "Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=WEIR_WASMTIME_VERSION={}", wasmtime_version(&workspace)?);

    let names = plugins(&workspace)?;
    let modules = compile(&workspace, &names)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut list = String::from("pub static BUILTINS: &[Builtin] = &[\n");
    for name in &names {
        let module = fs::read(modules.join(format!("{}.wasm", name.replace('-', "_"))))?;
        let component = ComponentEncoder::default().validate(true).module(&module)?.encode()?;
        let path = out.join(format!("{name}.wasm"));
        fs::write(&path, component)?;
        list.push_str(&format!("    Builtin {{ name: {name:?}, bytes: include_bytes!({path:?}) }},\n"));
    }
    list.push_str("];\n");
    fs::write(out.join("builtins.rs"), list)?;
    Ok(())
}

/// The exact version in the lock file: part of the compile cache's key.
fn wasmtime_version(workspace: &Path) -> Result<String> {
    let lock = fs::read_to_string(workspace.join("Cargo.lock"))?;
    let mut lines = lock.lines().skip_while(|line| *line != "name = \"wasmtime\"").skip(1);
    let version = lines.next().and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    Ok(version.ok_or("no wasmtime in Cargo.lock")?.to_owned())
}

fn workspace() -> Result<PathBuf> {
    let host = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    Ok(host.parent().ok_or("the package stands in no workspace")?.to_owned())
}

/// The packages of `plugins/`, which are named as their folders.
fn plugins(workspace: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(workspace.join("plugins"))? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").exists() {
            names.push(entry.file_name().into_string().map_err(|_| "a plugin's folder is no UTF-8")?);
        }
    }
    names.sort();
    Ok(names)
}

/// Compiles the plugins and gives the folder of the core modules.
fn compile(workspace: &Path, names: &[String]) -> Result<PathBuf> {
    let target_dir = workspace.join("target/guests");
    let mut cargo = Command::new(env::var_os("CARGO").ok_or("no CARGO: run this with cargo")?);
    cargo.current_dir(workspace).args(["build", "--locked", "--target", TARGET, "--profile", PROFILE]);
    cargo.arg("--target-dir").arg(&target_dir);
    for name in names {
        cargo.args(["--package", name]);
    }
    // What has been said about the host's own build must not reach the guests:
    // flags and wrappers of coverage tools, for example. Where crates come from
    // still holds.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_about_this_build) {
            cargo.env_remove(&name);
        }
    }
    cargo.env("RUSTFLAGS", format!("-C link-arg={STACK}"));

    let output = cargo.output().map_err(|error| format!("can't run cargo for the plugins: {error}"))?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr);
        if log.contains("target may not be installed") {
            return Err(format!("the plugins need a WebAssembly target: run `rustup target add {TARGET}`").into());
        }
        return Err(format!("the plugins don't build:\n{log}").into());
    }
    Ok(target_dir.join(TARGET).join(PROFILE))
}

fn is_about_this_build(variable: &str) -> bool {
    let starts = |starts: &[&str]| starts.iter().any(|start| variable.starts_with(start));
    let is_kept = starts(&["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "RUSTUP_"]);
    starts(&["CARGO", "RUST"]) && !is_kept
}
