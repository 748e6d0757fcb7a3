//! What plugins have prepared: edits and limiters.

use super::{
    Exchange,
    head::{OwnedEdit, join},
};
use crate::{
    EditError, EditTemplate, ValueTemplate,
    field::{check_name, check_value, is_token},
    store::{KeyPart, Limit, StoreError},
};

const MOST_EDITS: usize = 256;
/// Keys of a limiter, parts of a key, and limits.
const MOST: usize = 8;
const LONGEST_PART: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Prepared {
    edits: Vec<Vec<OwnedTemplate>>,
    limiters: Vec<(Vec<Vec<OwnedPart>>, Vec<Limit>)>,
}

#[derive(Debug)]
enum OwnedTemplate {
    Set(String, OwnedValue),
    Append(String, OwnedValue),
    Remove(String),
}

#[derive(Debug)]
enum OwnedValue {
    Fixed(Vec<u8>),
    Given,
    Consumer,
}

#[derive(Debug)]
enum OwnedPart {
    Fixed(Vec<u8>),
    Route,
    Consumer,
    ClientNetwork,
    Header(String),
}

impl Prepared {
    pub(super) fn add_edits(&mut self, edits: &[EditTemplate<'_>]) -> Result<u32, EditError> {
        if edits.len() > MOST_EDITS {
            return Err(EditError::TooMany);
        }
        let edits = edits.iter().map(template).collect::<Result<_, _>>()?;
        self.edits.push(edits);
        Ok(self.edits.len() as u32 - 1)
    }

    /// The edits with their values, which must be just as many.
    pub(super) fn fill(&self, id: u32, values: &[u8], consumer: Option<&str>) -> Result<Vec<OwnedEdit>, EditError> {
        let Some(edits) = self.edits.get(id as usize) else {
            panic!("no edits are prepared under {id}: the gateway traps here");
        };
        let mut given = values.split_inclusive(|byte| *byte == b'\n');
        let mut filled = Vec::new();
        for edit in edits {
            let (name, value, is_set) = match edit {
                OwnedTemplate::Set(name, value) => (name.clone(), value, true),
                OwnedTemplate::Append(name, value) => (name.clone(), value, false),
                OwnedTemplate::Remove(name) => {
                    filled.push(OwnedEdit::Remove(name.clone()));
                    continue;
                }
            };
            let value = match value {
                OwnedValue::Fixed(value) => Some(value.clone()),
                OwnedValue::Given => {
                    let value = given.next().and_then(|value| value.strip_suffix(b"\n"));
                    Some(value.ok_or(EditError::InvalidValue)?.to_vec())
                }
                OwnedValue::Consumer => consumer.map(|name| name.as_bytes().to_vec()),
            };
            match value {
                Some(value) if is_set => filled.push(OwnedEdit::Set(name, value)),
                Some(value) => filled.push(OwnedEdit::Append(name, value)),
                None if is_set => filled.push(OwnedEdit::Remove(name)),
                None => {}
            }
        }
        if given.next().is_some() { Err(EditError::InvalidValue) } else { Ok(filled) }
    }

    pub(super) fn add_limiter(&mut self, keys: &[&[KeyPart<'_>]], limits: &[Limit]) -> Result<u32, StoreError> {
        let fits = |most: usize, len: usize| (1..=most).contains(&len);
        if !fits(MOST, keys.len()) || !fits(MOST, limits.len()) || keys.iter().any(|parts| parts.len() > MOST) {
            return Err(StoreError::Invalid);
        }
        if limits.iter().any(|limit| limit.quota == 0 || limit.window == 0) {
            return Err(StoreError::Invalid);
        }
        let own = |parts: &&[KeyPart<'_>]| parts.iter().map(part).collect::<Result<Vec<_>, _>>();
        let keys = keys.iter().map(own).collect::<Result<_, _>>()?;
        self.limiters.push((keys, limits.to_vec()));
        Ok(self.limiters.len() as u32 - 1)
    }

    /// Key and limits for this request; none if it lacks a part of each key.
    pub(super) fn limiter(&self, id: u32, exchange: &Exchange) -> Option<(Vec<u8>, Vec<Limit>)> {
        let Some((keys, limits)) = self.limiters.get(id as usize) else {
            panic!("no limiter is prepared under {id}: the gateway traps here");
        };
        let key = keys.iter().find_map(|parts| key(parts, exchange))?;
        Some((key, limits.clone()))
    }
}

fn template(edit: &EditTemplate<'_>) -> Result<OwnedTemplate, EditError> {
    let name = |name: &str| check_name(name).map(|()| name.to_ascii_lowercase());
    let value = |value: &ValueTemplate<'_>| match value {
        ValueTemplate::Fixed(value) => check_value(value).map(|()| OwnedValue::Fixed(value.to_vec())),
        ValueTemplate::Given => Ok(OwnedValue::Given),
        ValueTemplate::Consumer => Ok(OwnedValue::Consumer),
    };
    Ok(match edit {
        EditTemplate::Set(field) => OwnedTemplate::Set(name(field.name)?, value(&field.value)?),
        EditTemplate::Append(field) => OwnedTemplate::Append(name(field.name)?, value(&field.value)?),
        EditTemplate::Remove(removed) => OwnedTemplate::Remove(name(removed)?),
    })
}

fn part(part: &KeyPart<'_>) -> Result<OwnedPart, StoreError> {
    Ok(match part {
        KeyPart::Fixed(bytes) if bytes.len() <= LONGEST_PART => OwnedPart::Fixed(bytes.to_vec()),
        KeyPart::Header(name) if is_token(name) => OwnedPart::Header((*name).to_owned()),
        KeyPart::Route => OwnedPart::Route,
        KeyPart::Consumer => OwnedPart::Consumer,
        KeyPart::ClientNetwork => OwnedPart::ClientNetwork,
        KeyPart::Fixed(_) | KeyPart::Header(_) => return Err(StoreError::Invalid),
    })
}

fn key(parts: &[OwnedPart], exchange: &Exchange) -> Option<Vec<u8>> {
    let mut key = vec![0];
    for part in parts {
        let (kind, bytes) = match part {
            OwnedPart::Fixed(bytes) => ("fixed", bytes.clone()),
            OwnedPart::Route => ("route", exchange.route.clone().into_bytes()),
            OwnedPart::Consumer => ("consumer", exchange.consumer.clone()?.into_bytes()),
            OwnedPart::ClientNetwork => match exchange.client_address.to_canonical() {
                std::net::IpAddr::V4(address) => ("ipv4", address.octets().to_vec()),
                std::net::IpAddr::V6(address) => ("ipv6", address.octets()[..8].to_vec()),
            },
            OwnedPart::Header(name) => {
                key.extend_from_slice(format!("{}:", name.to_ascii_lowercase()).as_bytes());
                ("header", join(&exchange.headers, name)?)
            }
        };
        key.extend_from_slice(format!("{kind}:{}:", bytes.len()).as_bytes());
        key.extend_from_slice(&bytes);
    }
    Some(key)
}
