//! The compile cache: machine code on disk, by the component's digest and
//! everything that the code depends on.
//!
//! Loading compiled code means running it, so only what this program has
//! written is loaded: the folder is private to its user, each file begins with
//! the digest of the rest, and a file that is not as it should be is compiled
//! anew.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    panic::resume_unwind,
    path::{Path, PathBuf},
    process, thread,
};

use sha2::{Digest, Sha256};
use wasmtime::{Engine, Result, component::Component};

/// Bytes of a digest at the front of a file.
const DIGEST: usize = 32;

/// A folder of compiled components.
pub struct CompileCache {
    /// None where the folder can't be used: everything is compiled each time.
    folder: Option<PathBuf>,
}

impl CompileCache {
    /// Uses a folder below `root`, named after the engine: another version,
    /// other options or another machine have another one.
    pub fn open(root: &Path, engine: &Engine) -> Self {
        let folder = root.join(engine_key(engine));
        match prepare(&folder) {
            Ok(()) => Self { folder: Some(folder) },
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "no compile cache: components are compiled at each start");
                Self { folder: None }
            }
        }
    }

    /// Compiles a component, or loads what an earlier call has compiled.
    pub fn component(&self, engine: &Engine, digest: &str, bytes: &[u8]) -> Result<Component> {
        let Some(folder) = &self.folder else { return compile(engine, bytes) };
        let path = folder.join(format!("{digest}.cwasm"));
        if let Some(component) = read(&path).and_then(|code| load(engine, &code)) {
            return Ok(component);
        }
        let component = compile(engine, bytes)?;
        if let Err(error) = write(&path, &component.serialize()?) {
            tracing::warn!(file = %path.display(), %error, "compiled component not cached");
        }
        Ok(component)
    }
}

/// Compiles on a thread that ends with it: the allocator keeps what it took for a
/// thread, and a compiler takes some 20 MiB.
fn compile(engine: &Engine, bytes: &[u8]) -> Result<Component> {
    const STACK: usize = 8 << 20;
    thread::scope(|scope| {
        let compiler = thread::Builder::new().name("compile".into()).stack_size(STACK);
        match compiler.spawn_scoped(scope, || Component::from_binary(engine, bytes))?.join() {
            Ok(compiled) => compiled,
            Err(panic) => resume_unwind(panic),
        }
    })
}

/// Everything that compiled code depends on beside the component. wasmtime
/// itself compares its major version only.
fn engine_key(engine: &Engine) -> String {
    use std::hash::{Hash, Hasher};
    struct Collect(Sha256);
    impl Hasher for Collect {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut key = Collect(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut key);
    key.write(env!("WEIR_WASMTIME_VERSION").as_bytes());
    key.write(std::env::consts::ARCH.as_bytes());
    hex(&key.0.finalize()[..12])
}

fn prepare(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let meta = fs::metadata(folder)?;
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if meta.permissions().mode() & 0o022 != 0 {
        return Err(io::Error::other("others may write to it"));
    }
    Ok(())
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let meta = fs::symlink_metadata(path).ok()?;
    if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    let (digest, code) = bytes.split_at_checked(DIGEST)?;
    (Sha256::digest(code).as_slice() == digest).then(|| code.to_vec())
}

/// Loads compiled code.
///
/// # Safety
///
/// `Component::deserialize` trusts its input. It is called with bytes that
/// `read` has returned only: from a file in a private folder, of this user's,
/// whole by its digest, written by `write` from `Component::serialize` of an
/// engine with the same key.
#[allow(unsafe_code)]
fn load(engine: &Engine, code: &[u8]) -> Option<Component> {
    unsafe { Component::deserialize(engine, code) }.ok()
}

/// Writes beside and renames, so that no reader sees half a file.
fn write(path: &Path, code: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.{:?}.tmp", process::id(), std::thread::current().id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(&Sha256::digest(code))?;
    file.write_all(code)?;
    drop(file);
    fs::rename(&beside, path).inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
