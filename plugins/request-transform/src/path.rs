//! Changes of the path sent upstream.

use schemars::JsonSchema;
use serde::Deserialize;
use weir_sdk::{Problem, path::normalise_escapes};

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The path that every request gets.
    set: Option<String>,
    /// Whole leading segments that are taken off, where they are there; before
    /// `prefix`.
    strip_prefix: Option<String>,
    /// What is put in front of the path.
    prefix: Option<String>,
}

/// What is done to the path.
#[derive(Debug)]
pub enum PathEdit {
    Set(String),
    Prefix {
        /// Segments, without slashes.
        strip: Vec<String>,
        /// With a slash in front, without one at the end.
        add: String,
    },
}

impl PathEdit {
    /// What the configuration says; `None` without any of it.
    pub fn new(config: Config) -> Result<Option<Self>, Vec<Problem>> {
        let given = [("set", &config.set), ("strip_prefix", &config.strip_prefix), ("prefix", &config.prefix)];
        let mut problems = Vec::new();
        for (key, path) in given {
            if let Some(path) = path
                && !is_path(path)
            {
                problems.push(Problem::at(&["path", key], "must be a path, percent-encoded, such as `/v1/users`"));
            }
        }
        if config.set.is_some() && (config.prefix.is_some() || config.strip_prefix.is_some()) {
            problems.push(Problem::at(&["path", "set"], "replaces the whole path: keep it, or the prefixes"));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        if let Some(path) = config.set {
            return Ok(Some(Self::Set(path)));
        }
        if config.prefix.is_none() && config.strip_prefix.is_none() {
            return Ok(None);
        }
        let strip = config.strip_prefix.unwrap_or_default();
        let strip = strip.split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect();
        let add = config.prefix.unwrap_or_default().trim_end_matches('/').to_owned();
        Ok(Some(Self::Prefix { strip, add }))
    }

    /// The new path; `None` if it stays. What is not taken off keeps its bytes.
    pub fn edit(&self, path: &str) -> Option<String> {
        let edited = match self {
            Self::Set(path) => path.clone(),
            Self::Prefix { strip, add } => {
                let rest = strip_segments(path, strip).unwrap_or(path);
                let rest = if rest.is_empty() && add.is_empty() { "/" } else { rest };
                [add, rest].concat()
            }
        };
        (edited != path).then_some(edited)
    }
}

fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte))
}

/// The path behind these leading segments, or `None` if it does not start with
/// them. Compares as the router does: doubled slashes count as one, and
/// unreserved characters may be escaped (RFC 3986 section 6.2.2).
fn strip_segments<'a>(path: &'a str, segments: &[String]) -> Option<&'a str> {
    let mut rest = path;
    for segment in segments {
        let start = rest.trim_start_matches('/');
        let end = start.find('/').unwrap_or(start.len());
        if normalise_escapes(&start[..end]) != normalise_escapes(segment) {
            return None;
        }
        rest = &start[end..];
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(strip: Option<&str>, add: Option<&str>, path: &str) -> String {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let edit = PathEdit::new(Config { set: None, strip_prefix: own(strip), prefix: own(add) }).unwrap().unwrap();
        edit.edit(path).unwrap_or_else(|| path.to_owned())
    }

    #[test]
    fn whole_segments_are_stripped() {
        let strip = |path| edited(Some("/api/v1"), None, path);
        assert_eq!(strip("/api/v1/users"), "/users");
        assert_eq!(strip("/api/v1"), "/");
        assert_eq!(strip("/api/v1/"), "/");
        assert_eq!(strip("/api/v1/api/v1"), "/api/v1");
        assert_eq!(strip("/api/v10"), "/api/v10");
        assert_eq!(strip("/api"), "/api");
        assert_eq!(strip("//api/%761/a%2Fb//c"), "/a%2Fb//c");
    }

    #[test]
    fn prefixes_are_put_in_front() {
        assert_eq!(edited(None, Some("/v2/"), "/users"), "/v2/users");
        assert_eq!(edited(Some("/v1"), Some("/v2"), "/v1/a%20b//"), "/v2/a%20b//");
        assert_eq!(edited(Some("/v1"), Some("/v2"), "/v1"), "/v2");
        assert_eq!(edited(Some("/v1"), Some("/v2"), "/x"), "/v2/x");
    }
}
