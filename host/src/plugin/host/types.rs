//! `types`: what several interfaces share.

use std::net::IpAddr;

use crate::{
    exchange::{Edit, EditError},
    plugin::{
        bindings::imports::types::{EditError as WitEditError, Field, FieldEdit, Host, IpAddress},
        store::InstanceState,
    },
};

impl Host for InstanceState {}

impl From<EditError> for WitEditError {
    fn from(error: EditError) -> Self {
        match error {
            EditError::InvalidName => WitEditError::InvalidName,
            EditError::InvalidValue => WitEditError::InvalidValue,
            EditError::Forbidden => WitEditError::Forbidden,
            EditError::TooMany => WitEditError::TooMany,
            EditError::TooLong => WitEditError::TooLong,
            EditError::Closed => WitEditError::Closed,
        }
    }
}

/// Checks an edit.
pub fn edit(edit: &FieldEdit) -> Result<Edit, EditError> {
    match edit {
        FieldEdit::Set(field) => Edit::set(&field.name, &field.value),
        FieldEdit::Append(field) => Edit::append(&field.name, &field.value),
        FieldEdit::Remove(name) => Edit::remove(name),
    }
}

/// Checks a line of an answer.
pub fn line(field: &Field) -> Result<Edit, EditError> {
    Edit::append(&field.name, &field.value)
}

pub fn address(address: IpAddr) -> IpAddress {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddress::Ipv4(address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            IpAddress::Ipv6(((bits >> 64) as u64, bits as u64))
        }
    }
}
