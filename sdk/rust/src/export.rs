//! From the gateway's calls to the author's hooks. Used by [`crate::export!`]
//! only.

use std::cell::RefCell;

use crate::{
    Action, Finish, Outcome, Phases, Plugin, Problem, Request, Response,
    bindings::exports::weir::plugin::hooks::{self, ChunkAction, Description, UseId},
    plugin::push_token,
};

/// Makes the crate a plugin: exports the hooks of the type, under the
/// package's name, version and description (or under `name = "…"`).
#[macro_export]
macro_rules! export {
    ($plugin:ty) => {
        $crate::export!($plugin, name = env!("CARGO_PKG_NAME"));
    };
    ($plugin:ty, name = $name:expr) => {
        const _: () = {
            struct Exported;

            impl $crate::export::Export for Exported {
                type Plugin = $plugin;
                const ABOUT: $crate::export::About =
                    $crate::export::About::new($name, env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_DESCRIPTION"));

                fn uses<R>(f: impl FnOnce(&$crate::export::Uses<$plugin>) -> R) -> R {
                    ::std::thread_local! {
                        static USES: $crate::export::Uses<$plugin> = const { $crate::export::Uses::new() };
                    }
                    USES.with(f)
                }
            }

            // Checked natively too.
            const _: $crate::export::About = <Exported as $crate::export::Export>::ABOUT;

            #[cfg(target_family = "wasm")]
            #[global_allocator]
            static ALLOCATOR: $crate::allocator::Recycling = $crate::allocator::Recycling::new();

            #[cfg(target_family = "wasm")]
            $crate::bindings::export_hooks! { Exported with_types_in $crate::bindings }
        };
    };
}

/// Who the plugin is.
pub struct About {
    name: &'static str,
    version: &'static str,
    summary: &'static str,
}

impl About {
    /// Stops the build where the name is none that the gateway takes.
    #[allow(clippy::panic, reason = "at compile time")]
    pub const fn new(name: &'static str, version: &'static str, summary: &'static str) -> Self {
        let bytes = name.as_bytes();
        assert!(!bytes.is_empty() && bytes.len() <= 64, "a plugin's name has 1 to 64 characters");
        assert!(bytes[0].is_ascii_lowercase(), "a plugin's name starts with a lower case letter");
        let mut i = 0;
        while i < bytes.len() {
            assert!(
                bytes[i].is_ascii_lowercase() || bytes[i].is_ascii_digit() || bytes[i] == b'-',
                "a plugin's name has lower case letters, digits and `-` only"
            );
            i += 1;
        }
        Self { name, version, summary }
    }
}

/// What [`crate::export!`] implements: the plugin and where its uses are kept
/// (a static in a generic function would be shared by all plugins).
pub trait Export {
    type Plugin: Plugin;
    const ABOUT: About;

    fn uses<R>(f: impl FnOnce(&Uses<Self::Plugin>) -> R) -> R;
}

/// The plugins made for each use so far, sorted by id.
///
/// They live as long as the instance, which the gateway replaces before dead
/// ones pile up: so a hook needs no count of references.
pub struct Uses<P: 'static>(RefCell<Vec<(UseId, &'static P)>>);

impl<P> Uses<P> {
    pub const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    fn get(&self, id: UseId) -> Option<&'static P> {
        let uses = self.0.borrow();
        let at = uses.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        uses.get(at).map(|(_, plugin)| *plugin)
    }

    fn set(&self, id: UseId, plugin: P) {
        let plugin: &'static P = Box::leak(Box::new(plugin));
        let mut uses = self.0.borrow_mut();
        match uses.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => uses[at].1 = plugin,
            Err(at) => uses.insert(at, (id, plugin)),
        }
    }
}

impl<P> Default for Uses<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Export> hooks::Guest for E {
    fn describe() -> Description {
        log_panics();
        let schema = schemars::schema_for!(<E::Plugin as Plugin>::Config);
        Description {
            name: E::ABOUT.name.into(),
            version: E::ABOUT.version.into(),
            summary: E::ABOUT.summary.into(),
            config_schema: schema.as_value().to_string(),
        }
    }

    fn configure(id: UseId, config: String) -> Result<Phases, Vec<Problem>> {
        log_panics();
        let plugin: E::Plugin = parse(&config)?;
        let phases = plugin.phases();
        E::uses(|uses| uses.set(id, plugin));
        Ok(phases)
    }

    fn on_request(id: UseId) -> hooks::Action {
        match E::uses(|uses| uses.get(id)) {
            Some(plugin) => ended(plugin.on_request(&mut Request::in_hand())),
            None => unknown(id),
        }
    }

    fn on_response(id: UseId) -> hooks::Action {
        match E::uses(|uses| uses.get(id)) {
            Some(plugin) => ended(plugin.on_response(&Request::in_hand(), &mut Response::in_hand())),
            None => unknown(id),
        }
    }

    fn on_request_body(_: UseId, _: Vec<u8>, _: bool) -> ChunkAction {
        ChunkAction::Pass
    }

    fn on_response_body(_: UseId, _: Vec<u8>, _: bool) -> ChunkAction {
        ChunkAction::Pass
    }

    fn on_finish(id: UseId) {
        match E::uses(|uses| uses.get(id)) {
            Some(plugin) => plugin.on_finish(&Request::in_hand(), &Response::in_hand(), &Finish::in_hand()),
            None => {
                unknown(id);
            }
        }
    }
}

/// The plugin for a configuration given as JSON text.
pub(crate) fn parse<P: Plugin>(config: &str) -> Result<P, Vec<Problem>> {
    let mut json = serde_json::Deserializer::from_str(config);
    let config = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| Problem { pointer: pointer(error.path()), message: error.into_inner().to_string() })?;
    P::new(config)
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;

    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => push_token(&mut pointer, &index.to_string()),
            Segment::Map { key } => push_token(&mut pointer, key),
            // In JSON an enum's variant with a value is a key.
            Segment::Enum { variant } => push_token(&mut pointer, variant),
            Segment::Unknown => {}
        }
    }
    pointer
}

fn ended(outcome: Outcome) -> hooks::Action {
    match outcome {
        Ok(Action::Continue) => hooks::Action::Continue,
        Ok(Action::Respond(_)) => hooks::Action::Respond,
        Err(failure) => {
            crate::error!("{failure}");
            hooks::Action::Fail
        }
    }
}

#[cold]
fn unknown(id: UseId) -> hooks::Action {
    crate::error!("use {id} has not been configured");
    hooks::Action::Fail
}

/// Has panics written to the gateway's log, with their place. Without it an
/// instance on `wasm32-unknown-unknown` dies without a word.
fn log_panics() {
    #[cfg(target_family = "wasm")]
    std::panic::set_hook(Box::new(|info| {
        let message = info.payload_as_str().unwrap_or("no message");
        match info.location() {
            Some(place) => crate::error!("panicked at {place}: {message}"),
            None => crate::error!("panicked: {message}"),
        }
    }));
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only parsed")]
    struct Config {
        limits: Vec<Limit>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only parsed")]
    struct Limit {
        quota: u32,
    }

    #[derive(Debug)]
    struct Sample;

    impl Plugin for Sample {
        type Config = Config;

        fn new(_: Config) -> Result<Self, Vec<Problem>> {
            Ok(Self)
        }

        fn phases(&self) -> Phases {
            Phases::NONE
        }
    }

    #[test]
    fn a_wrong_type_has_its_place() {
        let problems = parse::<Sample>(r#"{"limits": [{"quota": 1}, {"quota": "x"}]}"#).unwrap_err();
        assert_eq!(problems[0].pointer, "/limits/1/quota");
    }

    #[test]
    fn uses_are_found_and_replaced() {
        let uses = Uses::new();
        for id in [7, 3, 900, 5] {
            uses.set(id, id);
        }
        uses.set(3, 33);
        let found: Vec<_> = [3, 5, 7, 900, 4].into_iter().map(|id| uses.get(id).copied()).collect();
        assert_eq!(found, [Some(33), Some(5), Some(7), Some(900), None]);
    }
}
