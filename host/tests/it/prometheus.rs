//! A strict reader of the Prometheus text format, for pages that tests look at.

use std::collections::{BTreeMap, HashSet};

/// A page of the Prometheus text format, read strictly.
pub struct Page(BTreeMap<String, Family>);

struct Family {
    kind: String,
    samples: Vec<Sample>,
}

struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Page {
    pub fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'));
        let mut families = BTreeMap::<String, Family>::new();
        let (mut current, mut series) = (String::new(), HashSet::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, _) = help.split_once(' ').expect("a help text");
                let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect("a type");
                let family = Family { kind: kind.to_owned(), samples: Vec::new() };
                assert!(families.insert(name.to_owned(), family).is_none(), "{name} twice");
                current = name.to_owned();
                continue;
            }
            assert!(series.insert(line.rsplit_once(' ').unwrap().0), "twice: {line}");
            let family = families.get_mut(&current).expect("a family");
            let sample = Sample::read(line);
            let suffix = sample.name.strip_prefix(&current).unwrap_or_else(|| panic!("{line} in {current}"));
            let suffixes: &[&str] = if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line}");
            family.samples.push(sample);
        }
        Self(families)
    }

    /// Each sample of this name that is not 0, by the values of its labels in
    /// the order of their names.
    pub fn samples(&self, name: &str) -> BTreeMap<String, f64> {
        let samples = self.0.values().flat_map(|family| &family.samples).filter(|sample| sample.name == name);
        let labels = |sample: &Sample| sample.labels.values().cloned().collect::<Vec<_>>().join(" ");
        samples.filter(|sample| sample.value != 0.0).map(|sample| (labels(sample), sample.value)).collect()
    }
}

impl Sample {
    fn read(line: &str) -> Self {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        };
        assert!(is_name(name), "{line}");
        let (mut rest, mut read) = (labels, BTreeMap::new());
        while rest != "}" {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(label), "{line}");
            let (value, length) = label_value(after);
            assert!(read.insert(label.to_owned(), value).is_none(), "{line}");
            rest = after[length..].strip_prefix(',').unwrap_or(&after[length..]);
        }
        Self { name: name.to_owned(), labels: read, value: value.parse().unwrap_or_else(|_| panic!("{line}")) }
    }
}

/// A label's value up to the closing quote, and how long it was written.
fn label_value(text: &str) -> (String, usize) {
    let (mut value, mut characters) = (String::new(), text.char_indices());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, at + 1),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                other => panic!("{other:?} is escaped in {text}"),
            },
            other => value.push(other),
        }
    }
    panic!("no end of {text}")
}

/// Checks that buckets are cumulative and end with the count, and tells how many
/// series there were.
pub fn check_histograms(page: &Page) -> usize {
    let mut checked = 0;
    for (name, family) in page.0.iter().filter(|(_, family)| family.kind == "histogram") {
        let mut series = BTreeMap::<_, Vec<&Sample>>::new();
        for sample in &family.samples {
            let mut labels = sample.labels.clone();
            labels.remove("le");
            series.entry(labels).or_default().push(sample);
        }
        for (labels, samples) in series {
            let one = |suffix: &str| {
                let mut found = samples.iter().filter(|sample| sample.name == format!("{name}{suffix}"));
                let value = found.next().unwrap_or_else(|| panic!("no {suffix} of {name} {labels:?}")).value;
                assert_eq!(found.count(), 0);
                value
            };
            let bound = |sample: &Sample| match sample.labels["le"].as_str() {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().unwrap(),
            };
            let buckets: Vec<_> = samples.iter().filter(|sample| sample.labels.contains_key("le")).collect();
            assert!(buckets.is_sorted_by(|one, next| bound(one) < bound(next) && one.value <= next.value), "{name}");
            let last = buckets.last().unwrap();
            assert_eq!((bound(last), last.value), (f64::INFINITY, one("_count")), "{name} {labels:?}");
            assert_eq!(one("_sum") > 0.0, one("_count") > 0.0, "{name} {labels:?}");
            checked += 1;
        }
    }
    checked
}
