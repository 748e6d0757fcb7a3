#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::config::error::{ConfigErrors, Problems};

fn read(text: &str) -> Result<(Document<'_>, Problems), ConfigErrors> {
    parse(text, Problems::new("f.yaml".into()))
}

/// What is told of `text`.
fn told(text: &str) -> String {
    match read(text) {
        Ok((_, problems)) if problems.is_empty() => String::new(),
        Ok((_, problems)) => problems.into_errors().to_string(),
        Err(errors) => errors.to_string(),
    }
}

/// `path line:column` of every value.
fn places(text: &str) -> Vec<String> {
    fn walk(value: Value<'_>, all: &mut Vec<String>) {
        let Position { line, column } = value.position();
        all.push(format!("{} {line}:{column}", value.path()));
        value.children().for_each(|child| walk(child, all));
    }
    let (document, _) = read(text).map_err(|errors| errors.to_string()).unwrap();
    let mut all = Vec::new();
    walk(document.root(), &mut all);
    all
}

#[test]
fn every_value_has_a_path_and_a_place() {
    let text = "a: 1\nbé:\n  - x: { y: z }\n  -   w\n\"c d\": |\n  text\n";
    let expected = [" 1:1", "a 1:4", "bé 3:3", "bé[0] 3:5", "bé[0].x 3:8", "bé[0].x.y 3:13", "bé[1] 4:7"];
    let quoted: Vec<_> = expected.iter().map(|place| place.replace("bé", "\"bé\"")).collect();
    assert_eq!(places(text), [quoted, vec!["\"c d\" 6:3".to_owned()]].concat());
}

#[test]
fn columns_count_characters() {
    assert_eq!(places("[\"é😀\", x]"), [" 1:1", "[0] 1:2", "[1] 1:8"]);
}

#[test]
fn an_omitted_value_stands_at_its_key() {
    assert_eq!(places("a:\n\n\nb: c\n"), [" 1:1", "a 1:1", "b 4:4"]);
}

#[test]
fn an_alias_has_the_path_of_its_use_and_the_place_of_its_anchor() {
    let text = "a: &x [{ b: c }]\nd: { e: *x }\n";
    let places = places(text);
    assert_eq!(places[..4], [" 1:1", "a 1:4", "a[0] 1:8", "a[0].b 1:13"]);
    assert_eq!(places[4..], ["d 2:4", "d.e 1:4", "d.e[0] 1:8", "d.e[0].b 1:13"]);
}

#[test]
fn aliases_of_aliases_are_expanded() {
    let (document, _) = read("a: &a [1]\nb: &b [*a, *a]\nc: [*b, 2]\n").map_err(|errors| errors.to_string()).unwrap();
    let c = document.root().get("c").unwrap();
    let inner: Vec<_> = c.children().flat_map(Value::children).flat_map(Value::children).map(Value::path).collect();
    assert_eq!(inner, ["c[0][0][0]", "c[0][1][0]"]);
    assert_eq!(c.children().count(), 2);
}

#[test]
fn depth_counts_behind_aliases() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(told(&nested(64)), "");
    assert_eq!(told(&nested(65)), "f.yaml:1:65: maps and lists are nested deeper than 64");
    let behind = |outer: usize| format!("a: &a {}\nb: {}*a{}\n", nested(30), "[".repeat(outer), "]".repeat(outer));
    assert_eq!(told(&behind(33)), "");
    assert_eq!(told(&behind(34)), "f.yaml:2:38: maps and lists are nested deeper than 64");
}

#[test]
fn scalars_mean_what_the_core_schema_says() {
    let number = |text: &str| Scalar::Number(text.parse().unwrap());
    for (text, expected) in [
        ("", Scalar::Null),
        ("~", Scalar::Null),
        ("null", Scalar::Null),
        ("true", Scalar::Bool(true)),
        ("FALSE", Scalar::Bool(false)),
        ("12", number("12")),
        ("+12", number("12")),
        ("-1.5", number("-1.5")),
        ("0x1F", number("31")),
        ("1e3", number("1000.0")),
        (".inf", number(".inf")),
        // Text to YAML 1.2, whatever 1.1 says, or what would lose digits.
        ("yes", Scalar::Text("yes")),
        ("off", Scalar::Text("off")),
        ("007", Scalar::Text("007")),
        ("1_000", Scalar::Text("1_000")),
        ("12:30", Scalar::Text("12:30")),
        ("1.2.3", Scalar::Text("1.2.3")),
        ("inf", Scalar::Text("inf")),
    ] {
        assert_eq!(Scalar::resolve(text, true), expected, "{text}");
        assert_eq!(Scalar::resolve(text, false), Scalar::Text(text));
    }
}

#[test]
fn the_byte_budget_counts_behind_aliases() {
    let text = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(20));
    assert_eq!(told(&text), "f.yaml:2:61: more than 16 MiB of text, with that behind aliases");
}

#[test]
fn all_duplicate_keys_are_told() {
    assert_eq!(
        told("a: 1\nb: { c: 1, c: 2, \"c\": 3 }\na: 2\n"),
        "f.yaml:2:12: b: the key \"c\" stands here twice (first at f.yaml:2:6)\n\
         f.yaml:2:18: b: the key \"c\" stands here twice (first at f.yaml:2:6)\n\
         f.yaml:3:1: the key \"a\" stands here twice (first at f.yaml:1:1)"
    );
}
