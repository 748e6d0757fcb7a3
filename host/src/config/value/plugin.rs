//! A plugin's own configuration.

use serde_yaml::{Mapping, Value as Yaml};

use crate::config::{
    document::{Scalar, Value},
    error::{Fault, Problems},
};

/// A plugin's configuration as JSON text, `{}` for none.
pub(in crate::config) fn json(value: Value<'_>, problems: &mut Problems) -> Option<String> {
    if value.scalar() == Some(Scalar::Null) {
        return Some("{}".to_owned());
    }
    let json = serde_json::to_string(&yaml(value, problems));
    // What the error says could show a part of the configuration.
    json.map_err(|_| problems.add(value, Fault::new("this can't be written as JSON"))).ok()
}

/// As deep as the document, which has a limit.
fn yaml(value: Value<'_>, problems: &mut Problems) -> Yaml {
    match value.scalar() {
        Some(Scalar::Null) => Yaml::Null,
        Some(Scalar::Bool(boolean)) => Yaml::Bool(boolean),
        Some(Scalar::Number(number)) => {
            if !number.is_finite() {
                problems.add(value, Fault::new("JSON has no such number").hint("put it in quotes if it is text"));
            }
            Yaml::Number(number)
        }
        Some(Scalar::Text(text)) => Yaml::String(text.to_owned()),
        None if value.is_list() => Yaml::Sequence(value.children().map(|item| yaml(item, problems)).collect()),
        None => {
            let entries = value.children().map(|entry| (Yaml::String(entry.key().to_owned()), yaml(entry, problems)));
            Yaml::Mapping(entries.collect::<Mapping>())
        }
    }
}
