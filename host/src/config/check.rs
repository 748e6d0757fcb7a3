//! A file to a checked [`Config`].

use std::{collections::HashMap, fs, io::Read, net::SocketAddr, path::Path, sync::Arc};

use sha2::{Digest, Sha256};

use super::{
    Config,
    document::{self, Document, Value},
    error::{ConfigErrors, Fault, Position, Problems},
    file::{self, File},
    spans::Spans,
};

mod overlap;

/// Largest file, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Loads and checks the configuration in the file at `path`.
///
/// Errors show `path` as it is given here. All problems are told at once, except
/// that a text that is no YAML, or beyond the budgets, has nothing after it.
pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
    let problems = Problems::new(path.display().to_string().into());
    let bytes = match read(path) {
        Ok(bytes) => bytes,
        Err(fault) => return Err(problems.fatal(None, fault)),
    };
    match std::str::from_utf8(&bytes) {
        Ok(text) => load_text(path, text),
        Err(error) => {
            let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let fault = Fault::new("the file is no UTF-8 from here on");
            Err(problems.fatal(Some(Position::after(&before)), fault))
        }
    }
}

/// As [`load`], for a text that is said to be from `path`; no file is read.
pub fn load_text(path: &Path, text: &str) -> Result<Config, ConfigErrors> {
    let file: Arc<str> = path.display().to_string().into();
    let problems = Problems::new(file.clone());
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(at) = text.find(is_not_printable) {
        let fault = Fault::new("a control character, which YAML does not allow");
        return Err(problems.fatal(Some(Position::after(&text[..at])), fault));
    }
    let (document, mut problems) = document::parse(text, problems)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let Some(read) = file::read(document.root(), folder, &mut problems) else {
        return Err(problems.into_errors());
    };
    check_addresses(&read, &document, &mut problems);
    overlap::check(&read.routes, &document, &mut problems);
    if !problems.is_empty() {
        return Err(problems.into_errors());
    }
    Ok(Config {
        workers: read.workers,
        listeners: read.listeners,
        admin: read.admin,
        access_log: read.access_log,
        drain: read.drain,
        modules: read.modules,
        consumers: read.consumers,
        upstreams: read.upstreams,
        routes: read.routes,
        digest: Sha256::digest(text).into(),
        spans: Arc::new(Spans::new(file, document.into_places())),
    })
}

/// Reports an address that is to be listened on twice. Port 0 is another port
/// each time.
fn check_addresses(file: &File, document: &Document<'_>, problems: &mut Problems) {
    let mut listeners = HashMap::new();
    for listener in file.listeners.iter().filter(|listener| listener.address.port() != 0) {
        let value = document.value(listener.origin);
        if let Some(first) = listeners.insert(listener.address, value) {
            listeners.insert(listener.address, first);
            problems.add(value, twice(listener.address, first, problems));
        }
    }
    if let Some(address) = file.admin
        && let Some(first) = listeners.get(&address)
    {
        let value = document.root().get("admin").unwrap_or(document.root());
        problems.add(value, twice(address, *first, problems));
    }
}

fn twice(address: SocketAddr, first: Value<'_>, problems: &Problems) -> Fault {
    let first = problems.place(first.position());
    Fault::new(format!("there is a listener on {address} already")).hint(format!("first at {first}"))
}

/// The file's bytes. What is no regular file is refused: reading a pipe could
/// take for ever, here and at every reload.
fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let unreadable = |error| Fault::new(format!("the file can't be read: {error}"));
    let metadata = path.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Fault::new("this is no regular file"));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    // The file may have grown since.
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(Fault::new(format!("the file is larger than {} MiB", MAX_FILE >> 20))),
        false => Ok(bytes),
    }
}

/// Control characters beyond YAML's (YAML 1.2.2, 5.1). To the parser a NUL is
/// the end of the text, so what follows would be lost without a word.
fn is_not_printable(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}') || matches!(c, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests;
