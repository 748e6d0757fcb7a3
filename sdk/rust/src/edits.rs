//! Edits of header fields that are prepared once.

pub use crate::bindings::weir::plugin::edits::{EditTemplate, FieldTemplate, ValueTemplate};
use crate::{EditError, host::edits as host};

/// Edits that are the same for every request but for some of their values.
///
/// Make them in [`crate::Plugin::new`], where what is wrong with them is found,
/// and do them in hooks: that costs a fraction of handing the same edits over
/// each time.
///
/// ```no_run
/// # use weir_sdk::prelude::*;
/// # fn new() -> Result<(), EditError> {
/// let edits = PreparedEdits::new(&[
///     EditTemplate::remove("x-debug"),
///     EditTemplate::set("x-consumer", ValueTemplate::Consumer),
///     EditTemplate::set("x-sequence", ValueTemplate::Given),
/// ])?;
/// # let hook = |request: &mut Request| -> Outcome {
/// let mut values = Values::new();
/// values.push_number(17);
/// request.edit_prepared(&edits, &values)?;
/// # Ok(Action::Continue)
/// # };
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PreparedEdits(u32);

impl PreparedEdits {
    /// Has the gateway check and keep the edits. Traps in hooks.
    pub fn new(edits: &[EditTemplate<'_>]) -> Result<Self, EditError> {
        host::prepare(edits).map(Self)
    }

    pub(crate) fn edit_request(&self, values: &Values) -> Result<(), EditError> {
        host::edit_request(self.0, &values.0)
    }

    pub(crate) fn plan_response(&self, values: &Values) -> Result<(), EditError> {
        host::plan_response(self.0, &values.0)
    }

    pub(crate) fn edit_response(&self, values: &Values) -> Result<(), EditError> {
        host::edit_response(self.0, &values.0)
    }
}

impl<'a> EditTemplate<'a> {
    /// Puts this one line in place of all lines of that name.
    pub fn set(name: &'a str, value: ValueTemplate<'a>) -> Self {
        Self::Set(FieldTemplate { name, value })
    }

    /// Adds a line behind those that are there.
    pub fn append(name: &'a str, value: ValueTemplate<'a>) -> Self {
        Self::Append(FieldTemplate { name, value })
    }

    /// Takes away all lines of that name. None there is no error.
    pub fn remove(name: &'a str) -> Self {
        Self::Remove(name)
    }
}

impl<'a> ValueTemplate<'a> {
    /// Always this value.
    pub fn fixed<V: AsRef<[u8]> + ?Sized>(value: &'a V) -> Self {
        Self::Fixed(value.as_ref())
    }
}

/// The values for [`ValueTemplate::Given`], in order.
#[derive(Debug, Default)]
pub struct Values(Vec<u8>);

impl Values {
    /// None at all.
    pub const NONE: Self = Self(Vec::new());

    /// None yet, with room for some.
    pub fn new() -> Self {
        Self(Vec::with_capacity(128))
    }

    /// Adds a value.
    pub fn push(&mut self, value: &[u8]) {
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    /// Adds a value that has several parts.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.0);
        self.0.push(b'\n');
    }

    /// Adds a number in decimal.
    pub fn push_number(&mut self, number: u64) {
        self.push_with(|text| push_number(text, number));
    }
}

/// Adds a number in decimal. The way by `write!` takes ten times as long.
pub fn push_number(text: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while number > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 999, u64::MAX] {
            let mut text = b"x".to_vec();
            push_number(&mut text, number);
            assert_eq!(text[1..], *number.to_string().as_bytes());
        }
    }

    #[test]
    fn each_value_has_its_line() {
        let mut values = Values::new();
        values.push(b"a");
        values.push(b"");
        values.push_with(|text| text.extend_from_slice(b"b;t="));
        values.push_number(7);
        assert_eq!(values.0, b"a\n\nb;t=\n7\n");
    }
}
