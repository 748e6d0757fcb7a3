//! `consumers`
//!
//! No error here shows a key.

use super::Once;
use crate::config::{
    Consumer, Secret,
    document::Value,
    error::{Fault, Problems},
    value::{self, Fields, name},
};

pub(super) fn read(value: Value<'_>, problems: &mut Problems) -> Option<Vec<Consumer>> {
    let items = value::items(value, problems)?;
    let (mut names, mut keys) = (Once::default(), Once::default());
    Some(items.filter_map(|item| consumer(item, &mut names, &mut keys, problems)).collect())
}

fn consumer<'d>(
    value: Value<'d>,
    names: &mut Once<'d>,
    keys: &mut Once<'d>,
    problems: &mut Problems,
) -> Option<Consumer> {
    let fields = Fields::read(value, &["name", "groups", "keys"], problems)?;
    let name = fields.require("name", problems).and_then(|value| names.name(value, "consumer", problems));
    let groups = fields.or("groups", Vec::new(), problems, |value, problems| {
        let items = value::items(value, problems)?;
        Some(items.filter_map(|item| value::parsed(item, problems, name::free).map(Into::into)).collect())
    });
    let keys = fields.or("keys", Vec::new(), problems, |value, problems| {
        let items = value::items(value, problems)?;
        Some(items.filter_map(|item| key(item, keys, problems)).collect())
    });
    Some(Consumer { name: name?.into(), groups, keys })
}

fn key<'d>(value: Value<'d>, keys: &mut Once<'d>, problems: &mut Problems) -> Option<Secret> {
    let key = value::parsed(value, problems, |text| {
        if text.is_empty() {
            return Err(Fault::new("the key is empty"));
        }
        // Taken as it is, the reference would be a key that everybody knows.
        match text.contains("${") {
            true => Err(Fault::new("references like ${env:NAME} are not supported in this version")),
            false => Ok(text),
        }
    })?;
    keys.check(key, value, || "this key was given before".to_owned(), problems);
    Some(Secret::new(key))
}
