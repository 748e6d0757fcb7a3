use std::{
    fs,
    os::unix::fs::symlink,
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use super::*;

/// Ten times what the sweep alone would take.
const DEADLINE: Duration = Duration::from_secs(20);

struct Watched {
    folder: tempfile::TempDir,
    events: Receiver<Event>,
    _watcher: Watcher,
}

/// A folder whose files are watched, after `prepare` has made them.
fn watch(names: &[&str], prepare: impl FnOnce(&Path)) -> Watched {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let (sender, events) = mpsc::channel();
    let watcher = Watcher::start(sender).unwrap();
    watcher.set(names.iter().map(|name| folder.path().join(name)).collect());
    Watched { folder, events, _watcher: watcher }
}

impl Watched {
    fn changes(&self) {
        assert!(matches!(self.events.recv_timeout(DEADLINE), Ok(Event::Changed)), "no change was told");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[test]
fn a_write_is_told() {
    let watched = watch(&["weir.yaml"], |folder| fs::write(folder.join("weir.yaml"), "a").unwrap());
    fs::write(watched.path("weir.yaml"), "bb").unwrap();
    watched.changes();
}

#[test]
fn a_rename_into_place_is_told() {
    let watched = watch(&["weir.yaml"], |folder| fs::write(folder.join("weir.yaml"), "a").unwrap());
    fs::write(watched.path("weir.yaml.new"), "b").unwrap();
    fs::rename(watched.path("weir.yaml.new"), watched.path("weir.yaml")).unwrap();
    watched.changes();
}

#[test]
fn a_flip_of_a_folder_link_is_told() {
    // The way Kubernetes mounts a ConfigMap.
    let watched = watch(&["weir.yaml"], |folder| {
        for version in ["..v1", "..v2"] {
            fs::create_dir(folder.join(version)).unwrap();
            fs::write(folder.join(version).join("weir.yaml"), version).unwrap();
        }
        symlink("..v1", folder.join("..data")).unwrap();
        symlink("..data/weir.yaml", folder.join("weir.yaml")).unwrap();
    });
    symlink("..v2", watched.path("..data_tmp")).unwrap();
    fs::rename(watched.path("..data_tmp"), watched.path("..data")).unwrap();
    watched.changes();
}

#[test]
fn a_file_that_goes_and_comes_back_is_told() {
    let watched = watch(&["m.wasm"], |folder| fs::write(folder.join("m.wasm"), "a").unwrap());
    fs::remove_file(watched.path("m.wasm")).unwrap();
    watched.changes();
    fs::write(watched.path("m.wasm"), "a").unwrap();
    watched.changes();
}

#[test]
fn a_file_that_is_not_there_yet_is_seen_to_come() {
    let watched = watch(&["sub/m.wasm"], |_| {});
    fs::create_dir(watched.path("sub")).unwrap();
    fs::write(watched.path("sub/m.wasm"), "a").unwrap();
    watched.changes();
}

#[test]
fn a_folder_that_is_replaced_is_told_and_watched_on() {
    let watched = watch(&["sub/m.wasm"], |folder| {
        fs::create_dir(folder.join("sub")).unwrap();
        fs::write(folder.join("sub/m.wasm"), "a").unwrap();
    });
    fs::rename(watched.path("sub"), watched.path("old")).unwrap();
    fs::create_dir(watched.path("sub")).unwrap();
    fs::write(watched.path("sub/m.wasm"), "b").unwrap();
    watched.changes();
    while watched.events.recv_timeout(SWEEP * 2).is_ok() {}
    fs::write(watched.path("sub/m.wasm"), "cc").unwrap();
    watched.changes();
}

#[test]
fn following_notes_each_link_and_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir(root.join("real")).unwrap();
    fs::write(root.join("real/f"), "").unwrap();
    symlink("real", root.join("link")).unwrap();
    symlink("link/f", root.join("entry")).unwrap();
    let (mut folders, mut names) = (HashSet::new(), HashSet::new());
    follow(&root.join("entry"), &mut folders, &mut names);
    assert_eq!(folders, HashSet::from([root.clone(), root.join("real")]));
    assert_eq!(names, HashSet::from(["entry".into(), "link".into(), "f".into()]));
}

#[test]
fn a_loop_of_links_ends() {
    let folder = tempfile::tempdir().unwrap();
    symlink("b", folder.path().join("a")).unwrap();
    symlink("a", folder.path().join("b")).unwrap();
    follow(&folder.path().join("a"), &mut HashSet::new(), &mut HashSet::new());
}
