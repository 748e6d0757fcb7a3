//! Tells when a file may have changed.
//!
//! Editors rename, Kubernetes flips symbolic links, builds write in pieces, and
//! inotify follows none of it: so the folders of every link on the way to a file
//! are watched, and what is noticed there waits until the files have been quiet.
//! A look at each file every two seconds finds what no event has told, on
//! network disks and where watches have run out. Whether the content is another
//! one is for the reader to find out.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use notify::{
    EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};

use super::Event;

/// How often each file is looked at without any event.
const SWEEP: Duration = Duration::from_secs(2);
/// For how long nothing may have happened before a change is told.
const QUIET: Duration = Duration::from_millis(40);
/// The longest wait for that; a file written without a pause is read as it is.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Links followed on the way to a file (as many as Linux follows).
const LINKS: usize = 40;

/// A thread that watches files.
pub struct Watcher {
    messages: Sender<Message>,
}

enum Message {
    /// Watch these, and no others; the sender goes away when they are watched.
    Files(Vec<PathBuf>, Sender<()>),
    /// Something happened to one of them.
    Noticed,
}

impl Watcher {
    /// Sends [`Event::Changed`] for each change, until nobody listens or the
    /// watcher is dropped.
    pub fn start(events: Sender<Event>) -> io::Result<Self> {
        let (messages, inbox) = mpsc::channel();
        let notices = messages.clone();
        thread::Builder::new().name("watch".into()).spawn(move || Watching::new(notices).run(&inbox, &events))?;
        Ok(Self { messages })
    }

    /// Replaces the files watched, and returns when they are. What they are
    /// then counts as known: read them afterwards.
    pub fn set(&self, files: Vec<PathBuf>) {
        let (watched, ready) = mpsc::channel();
        if self.messages.send(Message::Files(files, watched)).is_ok() {
            let _ = ready.recv();
        }
    }
}

struct Watching {
    files: Vec<PathBuf>,
    seen: Vec<Option<Signature>>,
    /// Names whose events matter, shared with the callback.
    names: std::sync::Arc<std::sync::Mutex<HashSet<OsString>>>,
    folders: HashSet<PathBuf>,
    /// None where the system gives none: the sweep has to do.
    watcher: Option<RecommendedWatcher>,
    warned: bool,
}

/// What a file looked like, its links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Watching {
    fn new(notices: Sender<Message>) -> Self {
        let names: std::sync::Arc<std::sync::Mutex<HashSet<OsString>>> = std::sync::Arc::default();
        let wanted = names.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let matters = match event {
                Ok(event) => is_change(&event.kind) && concerns(&event.paths, &wanted),
                // Events may have been lost.
                Err(_) => true,
            };
            if matters {
                let _ = notices.send(Message::Noticed);
            }
        });
        let mut watching =
            Self { files: Vec::new(), seen: Vec::new(), names, folders: HashSet::new(), watcher: None, warned: false };
        match watcher {
            Ok(watcher) => watching.watcher = Some(watcher),
            Err(error) => watching.warn(&error),
        }
        watching
    }

    fn run(mut self, inbox: &Receiver<Message>, events: &Sender<Event>) {
        loop {
            let changed = match inbox.recv_timeout(SWEEP) {
                Ok(Message::Files(files, _watched)) => {
                    self.take(files);
                    false
                }
                Ok(Message::Noticed) => self.settle(inbox),
                Err(RecvTimeoutError::Timeout) => self.look() && self.settle(inbox),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if changed {
                self.watch_folders();
            }
            if changed && events.send(Event::Changed).is_err() {
                return;
            }
        }
    }

    fn take(&mut self, files: Vec<PathBuf>) {
        if files != self.files {
            self.files = files;
            self.watch_folders();
            self.look();
        }
    }

    /// Looks at each file, and tells whether one is another than before.
    fn look(&mut self) -> bool {
        let now: Vec<_> = self.files.iter().map(|file| signature(file)).collect();
        let changed = now != self.seen;
        self.seen = now;
        changed
    }

    /// Waits until the files have been quiet. True, so that it reads as the
    /// outcome of a change.
    fn settle(&mut self, inbox: &Receiver<Message>) -> bool {
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            match inbox.recv_timeout(QUIET) {
                Ok(Message::Files(files, _watched)) => self.take(files),
                Ok(Message::Noticed) => {}
                Err(RecvTimeoutError::Timeout) if !self.look() => return true,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return true,
            }
            if Instant::now() > deadline {
                self.look();
                return true;
            }
        }
    }

    /// Watches the folders where a change of a file would show, also those that
    /// have come back since.
    fn watch_folders(&mut self) {
        let (mut folders, mut names) = (HashSet::new(), HashSet::new());
        for file in &self.files {
            follow(file, &mut folders, &mut names);
        }
        if let Ok(mut wanted) = self.names.lock() {
            *wanted = names;
        }
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.folders.difference(&folders) {
            let _ = watcher.unwatch(gone);
        }
        let mut failed = None;
        let mut watched = HashSet::new();
        for folder in folders {
            // Watched again each time: a folder that was replaced under its
            // name has lost its watch, and adding one twice changes nothing.
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => drop(watched.insert(folder)),
                Err(error) if folder.is_dir() => failed = Some(error),
                Err(_) => {}
            }
        }
        self.folders = watched;
        if let Some(error) = failed {
            self.warn(&error);
        }
    }

    fn warn(&mut self, error: &notify::Error) {
        if !self.warned {
            self.warned = true;
            tracing::warn!(%error, "files can't be watched: changes are found within {} s", SWEEP.as_secs());
        }
    }
}

/// Reading a file is no change, closing one that was written is.
fn is_change(kind: &EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if *access != AccessKind::Close(AccessMode::Write))
}

fn concerns(paths: &[PathBuf], names: &std::sync::Mutex<HashSet<OsString>>) -> bool {
    let Ok(names) = names.lock() else { return true };
    paths.is_empty() || paths.iter().any(|path| path.file_name().is_none_or(|name| names.contains(name)))
}

/// None for a file that can't be looked at.
pub fn signature(file: &Path) -> Option<Signature> {
    let meta = fs::metadata(file).ok()?;
    let modified = (meta.mtime(), meta.mtime_nsec());
    Some(Signature { device: meta.dev(), inode: meta.ino(), size: meta.len(), modified })
}

/// Walks to a file as the system does, and notes the folder and name of each
/// link on the way, and of the file itself.
fn follow(file: &Path, folders: &mut HashSet<PathBuf>, names: &mut HashSet<OsString>) {
    let Ok(absolute) = std::path::absolute(file) else { return };
    let mut rest: Vec<PathBuf> = vec![absolute];
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(path) = rest.pop() {
        let mut parts = path.components();
        let Some(part) = parts.next() else { continue };
        let left = parts.as_path().to_path_buf();
        let is_last = left.as_os_str().is_empty() && rest.iter().all(|path| path.as_os_str().is_empty());
        if !left.as_os_str().is_empty() {
            rest.push(left);
        }
        match part {
            Component::RootDir | Component::Prefix(_) => at = PathBuf::from("/"),
            Component::CurDir => {}
            Component::ParentDir => drop(at.pop()),
            Component::Normal(name) => {
                let step = at.join(name);
                let link = fs::read_link(&step).ok().filter(|_| links < LINKS);
                if is_last || link.is_some() {
                    folders.insert(at.clone());
                    names.insert(name.to_owned());
                }
                match link {
                    Some(target) => {
                        links += 1;
                        rest.push(target);
                    }
                    None => at = step,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
