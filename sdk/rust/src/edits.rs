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
/// # use weir_sdk::{edits::Decimal, prelude::*};
/// # fn new() -> Result<(), EditError> {
/// let edits = PreparedEdits::new(&[
///     EditTemplate::remove("x-debug"),
///     EditTemplate::set("x-consumer", ValueTemplate::Consumer),
///     EditTemplate::set("x-sequence", ValueTemplate::Given),
/// ])?;
/// # let hook = |request: &mut Request| -> Outcome {
/// let mut values = Values::new();
/// values.push(&Decimal::new(17));
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

    pub(crate) fn id(&self) -> u32 {
        self.0
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

    /// Adds a value. One with a line feed counts as two, and so makes the edits
    /// refuse all of them.
    pub fn push<V: AsRef<[u8]> + ?Sized>(&mut self, value: &V) {
        self.0.extend_from_slice(value.as_ref());
        self.0.push(b'\n');
    }

    /// Adds a value made of these parts.
    pub fn push_parts(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        self.0.push(b'\n');
    }
}

/// A number in decimal. The way by `format!` takes ten times as long.
#[derive(Debug, Clone, Copy)]
pub struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    /// That number.
    pub fn new(number: u64) -> Self {
        let mut decimal = Self { digits: [0; 20], start: 20 };
        let mut rest = number;
        while rest > u64::from(u32::MAX) {
            decimal.put((rest % 100) as u32);
            rest /= 100;
        }
        // Numbers of 32 bits are divided by a multiplication.
        let mut rest = rest as u32;
        while rest > 9 {
            decimal.put(rest % 100);
            rest /= 100;
        }
        if rest > 0 || decimal.start == 20 {
            decimal.start -= 1;
            decimal.digits[decimal.start] = b'0' + rest as u8;
        }
        decimal
    }

    /// Two digits at a time: each turn of a loop costs a guest a check of its time.
    #[inline(always)]
    fn put(&mut self, pair: u32) {
        self.start -= 2;
        self.digits[self.start] = b'0' + (pair / 10) as u8;
        self.digits[self.start + 1] = b'0' + (pair % 10) as u8;
    }
}

impl AsRef<[u8]> for Decimal {
    fn as_ref(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for number in
            [0, 7, 10, 99, 100, 999, 1000, u64::from(u32::MAX), u64::from(u32::MAX) + 1, 10_000_000_000, u64::MAX]
        {
            assert_eq!(Decimal::new(number).as_ref(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn each_value_has_its_line() {
        let mut values = Values::new();
        values.push("a");
        values.push(b"");
        values.push_parts(&[b"b;t=", b"7"]);
        values.push(&Decimal::new(7));
        assert_eq!(values.0, b"a\n\nb;t=7\n7\n");
    }
}
