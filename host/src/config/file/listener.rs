//! `listen`

use crate::config::{
    Listener, ListenerLimits, ListenerTimeouts, UnderscoreHeaders,
    document::Value,
    error::Problems,
    value::{self, Fields, address, units},
};

const KEYS: [&str; 5] = ["address", "trusted_proxies", "underscore_headers", "limits", "timeouts"];

pub(super) fn read(value: Value<'_>, problems: &mut Problems) -> Option<Vec<Listener>> {
    let items = value::some_items(value, "like - address: 127.0.0.1:8080", problems)?;
    Some(items.filter_map(|item| listener(item, problems)).collect())
}

fn listener(value: Value<'_>, problems: &mut Problems) -> Option<Listener> {
    let fields = Fields::read(value, &KEYS, problems)?;
    let address = fields.require("address", problems);
    let trusted_proxies = fields.or("trusted_proxies", Vec::new(), problems, |value, problems| {
        let items = value::items(value, problems)?;
        Some(items.filter_map(|item| value::parsed(item, problems, address::network)).collect())
    });
    let words = [("drop", UnderscoreHeaders::Drop), ("allow", UnderscoreHeaders::Allow)];
    let underscore_headers =
        fields.or("underscore_headers", words[0].1, problems, |value, problems| value::choice(value, &words, problems));
    let limits = fields.or("limits", ListenerLimits::default(), problems, limits);
    let timeouts = fields.or("timeouts", ListenerTimeouts::default(), problems, timeouts);
    let address = value::parsed(address?, problems, address::socket)?;
    Some(Listener { address, trusted_proxies, underscore_headers, limits, timeouts, origin: value.origin() })
}

fn limits(value: Value<'_>, problems: &mut Problems) -> Option<ListenerLimits> {
    let fields = Fields::read(value, &["head", "fields", "target"], problems)?;
    let default = ListenerLimits::default();
    let mut bytes = |key, default: usize, most| {
        fields.or(key, default, problems, |value, problems| {
            value::measured(value, problems, |text| units::size(text, 256..=most)).map(|bytes| bytes as usize)
        })
    };
    Some(ListenerLimits {
        head: bytes("head", default.head, 1 << 20),
        // What `http::Uri` can hold.
        target: bytes("target", default.target, u64::from(u16::MAX) - 1),
        fields: fields.or("fields", default.fields, problems, |value, problems| {
            value::number(value, 1..=4096, problems).map(|fields| fields as usize)
        }),
    })
}

fn timeouts(value: Value<'_>, problems: &mut Problems) -> Option<ListenerTimeouts> {
    let fields = Fields::read(value, &["head", "body_idle", "keep_alive"], problems)?;
    let default = ListenerTimeouts::default();
    let mut duration = |key, default| {
        fields.or(key, default, problems, |value, problems| value::measured(value, problems, units::some_duration))
    };
    Some(ListenerTimeouts {
        head: duration("head", default.head),
        body_idle: duration("body_idle", default.body_idle),
        keep_alive: duration("keep_alive", default.keep_alive),
    })
}
