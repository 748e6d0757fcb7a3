//! Components of `tests/guests`, built when a test first asks for one.

use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use wit_component::ComponentEncoder;

/// Gives a core module, which imports nothing but our own interfaces.
const PLAIN: &str = "wasm32-unknown-unknown";
/// Gives a component, which imports WASI.
const WASI: &str = "wasm32-wasip2";
const PROFILE: &str = "guest";

/// The component file of the guest of that name.
pub fn path(name: &str) -> PathBuf {
    build(name, PLAIN, None)
}

/// The component file of `stamp`, built to say that it has this version.
pub fn stamp(version: &str) -> PathBuf {
    build("stamp", PLAIN, Some(version))
}

/// The component file of a guest, built as one that imports WASI.
pub fn wasi(name: &str) -> PathBuf {
    build(name, WASI, None)
}

/// The core module of a guest, which is no component.
pub fn core_module(name: &str) -> Vec<u8> {
    compile(name, PLAIN, None)
}

/// Builds a guest once per test run. Tests that come meanwhile wait; other
/// test runs are kept apart by cargo's lock and by the rename.
fn build(name: &str, target: &str, version: Option<&str>) -> PathBuf {
    static BUILT: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let key = format!("{name}-{}-{target}", version.unwrap_or("0"));

    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let built = built.get_or_insert_default();
    if let Some(path) = built.get(&key) {
        return path.clone();
    }
    let mut component = compile(name, target, version);
    if target == PLAIN {
        component = ComponentEncoder::default()
            .validate(true)
            .module(&component)
            .and_then(|encoder| encoder.encode())
            .unwrap_or_else(|error| panic!("{name} is no component: {error:#}"));
    }
    let folder = target_dir().join("components");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{key}.wasm"));
    let draft = folder.join(format!("{key}.{}", std::process::id()));
    fs::write(&draft, component).unwrap();
    fs::rename(&draft, &path).unwrap();
    built.insert(key, path.clone());
    path
}

/// Compiles a guest. Each time by a call of cargo, since all versions of `stamp`
/// have the same file there.
fn compile(name: &str, target: &str, version: Option<&str>) -> Vec<u8> {
    cargo(&["--example", name, "--target", target], version);
    let module = target_dir().join(target).join(PROFILE).join("examples").join(format!("{name}.wasm"));
    fs::read(&module).unwrap_or_else(|error| panic!("{}: {error}", module.display()))
}

fn cargo(what: &[&str], stamp_version: Option<&str>) {
    let mut cargo = clean_cargo();
    cargo.current_dir(workspace()).args(["build", "--locked", "--package", "weir-test-guests"]).args(what);
    cargo.args(["--profile", PROFILE]).arg("--target-dir").arg(target_dir());
    // The same as for the built-ins, so that what both need is compiled once.
    cargo.env("RUSTFLAGS", "-C link-arg=-zstack-size=65536");
    if let Some(version) = stamp_version {
        cargo.env("STAMP_VERSION", version);
    }
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "the guests don't build:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Cargo as in a shell of its own: without what the cargo that runs the tests
/// has told them.
pub fn clean_cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in env::vars_os() {
        let is_kept =
            |name: &str| name == "CARGO_HOME" || name.starts_with("CARGO_NET_") || name.starts_with("RUSTUP_");
        let is_build = |name: &str| name.starts_with("CARGO") || name.starts_with("RUST");
        if name.to_str().is_some_and(|name| is_build(name) && !is_kept(name)) {
            cargo.env_remove(&name);
        }
    }
    cargo.env_remove("STAMP_VERSION");
    cargo
}

/// Where WebAssembly is built for tests.
pub fn target_dir() -> PathBuf {
    workspace().join("target/guests")
}

pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
