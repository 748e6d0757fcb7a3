//! A route's chain of plugins.

use std::{collections::HashMap, sync::Arc};

use super::module;
use crate::config::{
    BUILTINS, Module, OnError, PluginLimits, PluginUse,
    document::Value,
    error::{Fault, Problems},
    value::{self, listed, plugin, quoted, unknown_key},
};

/// What may stand beside a plugin's name.
const BESIDE: [&str; 2] = ["on_error", "limits"];

/// Most plugins of one chain: an exchange counts places in a byte.
const LONGEST: usize = 100;

/// The plugins that a chain may name.
pub(super) struct Plugins<'m> {
    known: HashMap<&'m str, (Arc<str>, PluginLimits)>,
    /// In order, so that an error is the same each time.
    names: Vec<&'m str>,
}

impl<'m> Plugins<'m> {
    /// The built-ins and `modules`, which take their place.
    pub fn new(modules: &'m [Module]) -> Self {
        let builtins = BUILTINS.iter().map(|name| (*name, (Arc::from(*name), PluginLimits::default())));
        let modules = modules.iter().map(|module| (module.name.as_ref(), (module.name.clone(), module.limits)));
        let known: HashMap<_, _> = builtins.chain(modules).collect();
        let mut names: Vec<_> = known.keys().copied().collect();
        names.sort_unstable();
        Self { known, names }
    }

    fn unknown(&self, name: &str, problems: &Problems) -> Fault {
        let hint = problems
            .nearest(name, self.names.iter().copied())
            .unwrap_or_else(|| "one of its own needs an entry under modules".to_owned());
        Fault::new(format!("no plugin {}", quoted(name))).hint(hint)
    }
}

pub(super) fn read(value: Value<'_>, plugins: &Plugins<'_>, problems: &mut Problems) -> Option<Vec<PluginUse>> {
    let items = value::items(value, problems)?;
    let uses: Vec<_> = items.filter_map(|item| plugin_use(item, plugins, problems)).collect();
    if uses.len() > LONGEST {
        problems.add(value, Fault::new(format!("a chain has at most {LONGEST} plugins")));
    }
    Some(uses)
}

/// A map with one plugin's name and configuration, and what else may stand
/// beside it.
fn plugin_use(value: Value<'_>, plugins: &Plugins<'_>, problems: &mut Problems) -> Option<PluginUse> {
    if let Some(name) = value.written().filter(|name| plugins.known.contains_key(name)) {
        problems.add(value, Fault::new("expected a map, found text").hint(format!("write {name}: {{}}")));
        return None;
    }
    let others = value::entries(value, problems)?.filter(|entry| !BESIDE.contains(&entry.key()));
    let (named, unknown): (Vec<_>, Vec<_>) = others.partition(|entry| plugins.known.contains_key(entry.key()));
    for entry in &unknown {
        // Beside a plugin it is meant as a key, alone as the plugin.
        let fault = match named.is_empty() {
            true => plugins.unknown(entry.key(), problems),
            false => unknown_key(entry.key(), &BESIDE),
        };
        problems.add_to_key(*entry, fault);
    }
    let on_error = value.get("on_error").and_then(|value| on_error(value, problems)).unwrap_or_default();
    let limits = value.get("limits");
    match named.as_slice() {
        [entry] => {
            let (module, base) = plugins.known.get(entry.key())?.clone();
            let limits = limits.and_then(|value| module::limits(value, base, problems)).unwrap_or(base);
            let config = plugin::json(*entry, problems)?.into();
            Some(PluginUse { module, config, on_error, limits, origin: entry.origin() })
        }
        [] => {
            if unknown.is_empty() {
                problems.add(value, Fault::new("no plugin is named here").hint("like key-auth: {}"));
            }
            None
        }
        [_, second, ..] => {
            let names: Vec<_> = named.iter().map(|entry| entry.key()).collect();
            let fault = Fault::new(format!("more than one plugin in an entry: {}", listed(&names)));
            problems.add_to_key(*second, fault.hint("each has an entry of its own, with its own dash"));
            None
        }
    }
}

fn on_error(value: Value<'_>, problems: &mut Problems) -> Option<OnError> {
    value::choice(value, &[("deny", OnError::Deny), ("skip", OnError::Skip)], problems)
}
