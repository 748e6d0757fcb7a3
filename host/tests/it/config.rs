//! Configuration files: what must load, and what is said of what must not.
//!
//! Each file under `tests/config` shows one rule and is named after it. Those in
//! `valid` load; for those in `invalid`, `weir check` prints the `.err` beside
//! them. With `WEIR_WRITE_GOLDEN=1` the `.err` files are written instead: read
//! the difference before you keep it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use weir::config::{self, Config, ConfigErrors};

use crate::support::binary;

/// The exit code for a bad configuration.
const BAD_CONFIG: i32 = 78;

/// The files of one kind, in order of their names.
fn cases(kind: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(kind);
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(files.len() > 10, "no files found");
    files
}

#[test]
fn valid_files_load() {
    let wrong: Vec<_> =
        cases("valid").iter().filter_map(|path| config::load(path).err()).map(|errors| errors.to_string()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn invalid_files_are_refused_with_the_text_beside_them() {
    let mut wrong = Vec::new();
    for path in cases("invalid") {
        let output = Command::new(binary())
            .args(["check", "--config"])
            .arg(path.file_name().unwrap())
            .current_dir(path.parent().unwrap())
            .output()
            .unwrap();
        let found = String::from_utf8(output.stderr).unwrap();
        let golden = path.with_extension("err");
        if std::env::var_os("WEIR_WRITE_GOLDEN").is_some() {
            fs::write(&golden, &found).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        if output.status.code() != Some(BAD_CONFIG) || found != expected {
            wrong.push(format!("{}: {}\nfound:\n{found}expected:\n{expected}", path.display(), output.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The name says that it is secret, and the text must not be found in any error.
#[test]
fn no_error_shows_a_secret() {
    for path in cases("invalid") {
        let errors = config::load(&path).unwrap_err().to_string();
        assert!(!errors.contains("hidden"), "{errors}");
    }
}

fn load(bytes: &[u8]) -> Result<Config, ConfigErrors> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.yaml");
    fs::write(&path, bytes).unwrap();
    config::load(&path)
}

/// The first error's text, without the file's name.
fn refusal(bytes: &[u8]) -> String {
    let errors = load(bytes).unwrap_err();
    let first = errors.iter().next().unwrap().to_string();
    first.split_once("weir.yaml:").unwrap().1.trim_start().to_owned()
}

#[test]
fn alias_bombs_are_refused() {
    let mut by_count = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..40 {
        let below = format!("*a{}, ", level - 1).repeat(8);
        by_count += &format!("a{level}: &a{level} [{below}]\n");
    }
    assert!(refusal(by_count.as_bytes()).contains("more than 1000000 values"));

    let by_size = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(100_000));
    assert!(refusal(by_size.as_bytes()).contains("more than 16 MiB of text"));

    let mut by_depth = "a0: &a0 []\n".to_owned();
    for level in 1..1_000 {
        by_depth += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
    }
    assert!(refusal(by_depth.as_bytes()).contains("nested deeper than 64"));
}

#[test]
fn deep_nesting_is_refused() {
    for open in ["[", "{ a: ", "- ", "? ", "[{ a: "] {
        let deep = open.repeat(100_000);
        assert!(load(deep.as_bytes()).is_err(), "{open}");
    }
    let block: String = (0..1_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(refusal(block.as_bytes()), "65:65: maps and lists are nested deeper than 64");
}

#[test]
fn what_is_no_text_is_refused() {
    assert_eq!(refusal(b"a: b\nc: \0\n"), "2:4: a control character, which YAML does not allow");
    assert_eq!(refusal(b"a: b\nc: \xc3\x28\n"), "2:4: the file is no UTF-8 from here on");
    assert_eq!(
        refusal("listen: 1".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>().as_slice()),
        "1:2: a control character, which YAML does not allow"
    );
}

#[test]
fn large_files_are_refused() {
    let scalar = format!("a: {}\n", "x".repeat(10 << 20));
    assert_eq!(refusal(scalar.as_bytes()), "the file is larger than 4 MiB");
    // Below the limit it is read, and what is shown of it is cut.
    let errors = load(format!("{}: 1\n", "x".repeat(1000)).as_bytes()).unwrap_err().to_string();
    assert!(errors.len() < 1000, "{errors}");
}

#[test]
fn several_documents_are_refused() {
    let documents = "listen: [{ address: 127.0.0.1:0 }]\n---\n".repeat(1_000);
    assert!(refusal(documents.as_bytes()).contains("a second document starts here"));
}

#[test]
fn many_anchors_are_read() {
    let anchors: String = (0..100_000).map(|anchor| format!("- &a{anchor} x\n")).collect();
    assert_eq!(refusal(anchors.as_bytes()), "1:1: expected a map, found a list");
}

#[test]
fn more_problems_than_anybody_reads_are_counted() {
    let unknown: String = (0..5_000).map(|key| format!("k{key}: 1\n")).collect();
    let errors = load(unknown.as_bytes()).unwrap_err();
    assert_eq!(errors.iter().count(), 1_000);
    assert!(errors.to_string().ends_with("\nand 4001 more"), "one each, and the missing listeners");
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |path: &Path| config::load(path).unwrap_err().to_string();
    assert!(refusal(folder.path()).ends_with(": this is no regular file"));
    assert!(refusal(Path::new("/dev/null")).ends_with(": this is no regular file"));
    assert!(refusal(&folder.path().join("none.yaml")).contains("none.yaml: the file can't be read: "));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(refusal(&file.join("weir.yaml")).contains("weir.yaml: the file can't be read: "));
}

#[test]
fn many_routes_and_consumers_load() {
    let mut text = "listen: [{ address: 127.0.0.1:0 }]\nconsumers:\n".to_owned();
    for consumer in 0..10_000 {
        text += &format!("  - {{ name: c{consumer}, keys: [key-{consumer}] }}\n");
    }
    text += "routes:\n";
    for route in 0..10_000 {
        text += &format!(
            "  - {{ name: r{route}, upstream: \"http://127.0.0.1:{}\", match: {{ hosts: [a.example], path: /{route} }} }}\n",
            route % 100 + 1
        );
    }
    let config = load(text.as_bytes()).map_err(|errors| errors.to_string()).unwrap();
    assert_eq!((config.routes.len(), config.consumers.len(), config.upstreams.len()), (10_000, 10_000, 100));
}

/// The configuration is read without anything that opens a socket or runs a
/// component; `check` and these tests rely on it.
#[test]
fn reading_a_configuration_runs_nothing() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut left = vec![source.join("config.rs"), source.join("config")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for crate_path in ["hyper::", "wasmtime::", "tokio::", "std::process", "TcpListener", "TcpStream"] {
            assert!(!text.contains(crate_path), "{} uses {crate_path}", path.display());
        }
    }
}
