//! `modules`, and the limits that a module's entry and a chain's share.

use std::path::Path;

use crate::config::{
    Module, PluginLimits,
    document::Value,
    error::{Fault, Problems},
    value::{self, Fields, name, units},
};

const LIMITS: [&str; 8] = ["memory", "cpu", "request_cpu", "wall", "body", "instances", "wait", "recycle_after"];

pub(super) fn read(value: Value<'_>, folder: &Path, problems: &mut Problems) -> Option<Vec<Module>> {
    let entries = value::entries(value, problems)?;
    Some(entries.map(|entry| module(entry, folder, problems)).collect())
}

/// A module that is wrong still has a name, so that chains may use it without
/// another error.
fn module(value: Value<'_>, folder: &Path, problems: &mut Problems) -> Module {
    if let Err(fault) = name::module(value.key()) {
        problems.add_to_key(value, fault);
    }
    let mut module = Module {
        name: value.key().into(),
        path: folder.to_owned(),
        sha256: None,
        env: Vec::new(),
        limits: PluginLimits::default(),
        origin: value.origin(),
    };
    if let Some(fields) = Fields::read(value, &["path", "sha256", "allow", "limits"], problems) {
        let path = fields.require("path", problems);
        if let Some(path) = path.and_then(|value| value::parsed(value, problems, file_path)) {
            module.path = folder.join(path);
        }
        module.sha256 = fields.get("sha256").and_then(|value| value::parsed(value, problems, name::sha256));
        module.env = fields.or("allow", Vec::new(), problems, allow);
        module.limits = fields
            .or("limits", module.limits, problems, |value, problems| limits(value, PluginLimits::default(), problems));
    }
    module
}

fn file_path(text: &str) -> Result<&Path, Fault> {
    match text.is_empty() {
        true => Err(Fault::new("the path is empty")),
        false => Ok(Path::new(text)),
    }
}

fn allow(value: Value<'_>, problems: &mut Problems) -> Option<Vec<String>> {
    let fields = Fields::read(value, &["env"], problems)?;
    let items = value::items(fields.get("env")?, problems)?;
    Some(items.filter_map(|item| value::parsed(item, problems, name::environment)).collect())
}

/// `base`, with what `value` sets on top.
pub(super) fn limits(value: Value<'_>, base: PluginLimits, problems: &mut Problems) -> Option<PluginLimits> {
    let fields = Fields::read(value, &LIMITS, problems)?;
    // A 32-bit linear memory ends at 4 GiB and grows by 64 KiB.
    let memory = |text: &str| units::size(text, 64 << 10..=4 << 30);
    let body = |text: &str| units::size(text, 0..=4 << 30);
    let mut limits = base;
    limits.memory = fields.or("memory", base.memory, problems, |value, told| value::measured(value, told, memory));
    limits.body = fields.or("body", base.body, problems, |value, told| value::measured(value, told, body));
    limits.wait = fields.or("wait", base.wait, problems, |value, told| value::measured(value, told, units::duration));
    for (key, limit) in [("cpu", &mut limits.cpu), ("request_cpu", &mut limits.request_cpu), ("wall", &mut limits.wall)]
    {
        *limit = fields.or(key, *limit, problems, |value, told| value::measured(value, told, units::some_duration));
    }
    limits.instances = fields.or("instances", base.instances, problems, |value, told| {
        value::number(value, 1..=4096, told).map(|instances| instances as u32)
    });
    limits.recycle_after = fields
        .or("recycle_after", base.recycle_after, problems, |value, told| value::number(value, 1..=1_000_000_000, told));
    Some(limits)
}
