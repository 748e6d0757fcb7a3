//! `upstreams`, and how a route names one.

use std::collections::HashMap;

use crate::config::{
    Balance, Target, Upstream, UpstreamKind,
    document::Value,
    error::{Fault, Problems},
    value::{self, Fields, address, name, quoted},
};

/// The name of the embedded demo upstream.
const ECHO: &str = "internal:echo";

const MAX_WEIGHT: u64 = 1_000_000;

/// The named upstreams, and those that routes name by URL.
#[derive(Default)]
pub(super) struct Table {
    list: Vec<Upstream>,
    /// Places in `list`.
    places: HashMap<String, usize>,
}

impl Table {
    pub fn read(value: Value<'_>, problems: &mut Problems) -> Option<Self> {
        let mut table = Self::default();
        for entry in value::entries(value, problems)? {
            if let Err(fault) = name::upstream(entry.key()) {
                problems.add_to_key(entry, fault);
            }
            // One that is wrong still has a name, so that routes may use it
            // without another error.
            let kind = kind(entry, problems).unwrap_or(UpstreamKind::Echo);
            table.add(entry.key(), kind);
        }
        Some(table)
    }

    /// The place of the upstream that a route names.
    pub fn find(&mut self, value: Value<'_>, problems: &mut Problems) -> Option<usize> {
        let text = value::text(value, problems)?;
        if let Some(place) = self.places.get(text) {
            return Some(*place);
        }
        if text == ECHO {
            return Some(self.add(ECHO, UpstreamKind::Echo));
        }
        if address::is_url(text) {
            return value::parsed(value, problems, address::target).map(|target| self.single(target));
        }
        let names = self.list.iter().map(|upstream| upstream.name.as_ref()).chain([ECHO]);
        let hint = problems
            .nearest(text, names)
            .unwrap_or_else(|| "a name under upstreams, or a URL like http://127.0.0.1:9001".to_owned());
        problems.add(value, Fault::new(format!("no upstream {}", quoted(text))).hint(hint));
        None
    }

    /// The upstream with this target alone. It has one name for all ways to
    /// write the URL, so that routes share its connections.
    fn single(&mut self, target: Target) -> usize {
        let name = format!("http://{}", target.authority);
        match self.places.get(&name) {
            Some(place) => *place,
            None => {
                let kind = UpstreamKind::Targets { balance: Balance::default(), targets: vec![target] };
                self.add(&name, kind)
            }
        }
    }

    pub fn into_list(self) -> Vec<Upstream> {
        self.list
    }

    fn add(&mut self, name: &str, kind: UpstreamKind) -> usize {
        let place = self.list.len();
        self.list.push(Upstream { name: name.into(), kind });
        self.places.insert(name.to_owned(), place);
        place
    }
}

fn kind(value: Value<'_>, problems: &mut Problems) -> Option<UpstreamKind> {
    let fields = Fields::read(value, &["balance", "targets"], problems)?;
    let words = [("round_robin", Balance::RoundRobin), ("least_requests", Balance::LeastRequests)];
    let balance =
        fields.or("balance", Balance::default(), problems, |value, problems| value::choice(value, &words, problems));
    let targets = fields.require("targets", problems)?;
    let targets = value::some_items(targets, "like - url: http://127.0.0.1:9001", problems)?;
    let targets = targets.filter_map(|item| target(item, problems)).collect();
    Some(UpstreamKind::Targets { balance, targets })
}

fn target(value: Value<'_>, problems: &mut Problems) -> Option<Target> {
    let fields = Fields::read(value, &["url", "weight"], problems)?;
    let url = fields.require("url", problems);
    let weight = fields.or("weight", 1, problems, |value, problems| value::number(value, 1..=MAX_WEIGHT, problems));
    let target = value::parsed(url?, problems, address::target)?;
    Some(Target { weight: weight as u32, ..target })
}
