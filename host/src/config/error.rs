//! What is wrong with a configuration, and where.

use std::{error::Error, fmt, sync::Arc};

use super::{document::Value, value::nearest};

/// Most problems that are told one by one; the rest are counted. A person mends
/// a few and looks again, and a hostile file gets no memory out of us.
const MOST_TOLD: usize = 1_000;

/// A place in a text. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub line: u32,
    pub column: u32,
}

impl Position {
    pub const START: Self = Self { line: 1, column: 1 };

    /// The place right after `before`, which is the start of the text.
    pub fn after(before: &str) -> Self {
        before.chars().fold(Self::START, |at, c| match c {
            '\n' => Self { line: at.line.saturating_add(1), column: 1 },
            _ => Self { column: at.column.saturating_add(1), ..at },
        })
    }
}

/// One problem of a configuration.
///
/// Shown as `file:line:column: path: problem (hint)`, where a part that is not
/// known is left out. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub(super) file: Arc<str>,
    pub(super) position: Option<Position>,
    /// Where in the tree, as `routes[1].plugins[0]`; empty for the whole file.
    pub(super) path: String,
    pub(super) problem: String,
    pub(super) hint: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(Position { line, column }) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.problem)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl Error for ConfigError {}

/// All problems of a configuration, in the file's order; at least one.
///
/// Shown one a line, without a line break at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    errors: Vec<ConfigError>,
    /// How many more there are.
    untold: usize,
}

impl ConfigErrors {
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.errors.iter()
    }

    /// How many there are, those that are not told included.
    pub fn count(&self) -> usize {
        self.errors.len() + self.untold
    }
}

impl From<Vec<ConfigError>> for ConfigErrors {
    fn from(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by_key(|error| error.position);
        let untold = errors.len().saturating_sub(MOST_TOLD);
        errors.truncate(MOST_TOLD);
        Self { errors, untold }
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self { errors: vec![error], untold: 0 }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, error) in self.errors.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        match self.untold {
            0 => Ok(()),
            untold => write!(f, "\nand {untold} more"),
        }
    }
}

impl Error for ConfigErrors {}

/// A problem that does not know its place yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub problem: String,
    pub hint: Option<String>,
}

impl Fault {
    pub fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), hint: None }
    }

    /// Says what to do about it.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// Collects problems, so that all of them are told at once.
pub(super) struct Problems {
    file: Arc<str>,
    errors: Vec<ConfigError>,
    untold: usize,
}

impl Problems {
    /// `file` is shown as it is.
    pub fn new(file: Arc<str>) -> Self {
        Self { file, errors: Vec::new(), untold: 0 }
    }

    /// Reports a fault of `value`, at its first character.
    pub fn add(&mut self, value: Value<'_>, fault: Fault) {
        let path = if self.is_full() { String::new() } else { value.path() };
        self.push(Some(value.position()), path, fault);
    }

    /// Reports a fault of the key that `value` stands under, which makes it a
    /// fault of the map around.
    pub fn add_to_key(&mut self, value: Value<'_>, fault: Fault) {
        let path = if self.is_full() { String::new() } else { value.parent_path() };
        self.push(Some(value.key_position()), path, fault);
    }

    /// Reports a fault at a place that has no value.
    pub fn push(&mut self, position: Option<Position>, path: String, Fault { problem, hint }: Fault) {
        match self.is_full() {
            true => self.untold += 1,
            false => self.errors.push(ConfigError { file: self.file.clone(), position, path, problem, hint }),
        }
    }

    /// `did you mean "…"?` with the nearest of `names`, which may be many: a
    /// problem that is only counted needs no search.
    pub fn nearest<'n>(&self, wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Option<String> {
        if self.is_full() { None } else { nearest(wrong, names) }
    }

    /// `position` for use in a text.
    pub fn place(&self, Position { line, column }: Position) -> String {
        format!("{}:{line}:{column}", self.file)
    }

    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    pub fn count(&self) -> usize {
        self.errors.len() + self.untold
    }

    /// Ends the collection with a problem beyond which nothing can be read.
    pub fn fatal(mut self, position: Option<Position>, fault: Fault) -> ConfigErrors {
        self.push(position, String::new(), fault);
        self.into_errors()
    }

    /// Call it with at least one problem in.
    pub fn into_errors(self) -> ConfigErrors {
        let mut all = ConfigErrors::from(self.errors);
        all.untold += self.untold;
        all
    }

    fn is_full(&self) -> bool {
        self.errors.len() >= MOST_TOLD
    }
}
