//! From a checked configuration to a gateway: modules loaded, plugins
//! configured, routes ordered. Whatever does not fit is reported at its place
//! in the file, all of it at once.

use std::{collections::HashMap, sync::Arc};

use sha2::{Digest, Sha256};

use super::{Entry, Gateway};
use crate::{
    config::{Config, ConfigError, ConfigErrors, ListenerLimits, Module, PluginUse},
    exchange::HeadCaps,
    identity::Identity,
    plugin::{
        Plugins, Source, Use,
        bindings::Phase,
        module::{LoadError, UseError},
    },
    router::Router,
};

/// A module's bytes, or that the problem with them has been told.
type Bytes = Option<Arc<[u8]>>;

impl Gateway {
    /// Builds everything that all workers share. Opens no socket.
    pub fn build(config: Config, version: u64, plugins: &mut Plugins) -> Result<Self, ConfigErrors> {
        let mut builder = Builder {
            head: largest_head(&config),
            config: &config,
            plugins,
            modules: HashMap::new(),
            problems: Vec::new(),
        };
        let mut chains = Vec::with_capacity(config.routes.len());
        for route in &config.routes {
            let entries = route.plugins.iter().filter_map(|used| builder.entry(used)).collect();
            chains.push(entries);
        }
        if !builder.problems.is_empty() {
            return Err(ConfigErrors::from(builder.problems));
        }
        Ok(Self {
            version,
            router: Router::new(&config.routes),
            identity: Identity::new(&config.consumers),
            chains,
            config,
        })
    }

    /// Every use of a plugin, once.
    pub fn uses(&self) -> Vec<Use> {
        let mut uses: Vec<Use> = self.chains.iter().flatten().map(|entry| entry.used.clone()).collect();
        uses.sort_by_key(|used| used.id);
        uses.dedup_by_key(|used| used.id);
        uses
    }
}

/// What plugins may make of a head, on whichever listener allows the most.
fn largest_head(config: &Config) -> HeadCaps {
    let most = |limit: fn(&ListenerLimits) -> usize| config.listeners.iter().map(|it| limit(&it.limits)).max();
    let (bytes, fields) = (most(|limits| limits.head), most(|limits| limits.fields));
    HeadCaps::new(bytes.unwrap_or_default(), fields.unwrap_or_default())
}

struct Builder<'a> {
    config: &'a Config,
    plugins: &'a mut Plugins,
    head: HeadCaps,
    modules: HashMap<Arc<str>, Bytes>,
    problems: Vec<ConfigError>,
}

impl Builder<'_> {
    fn entry(&mut self, used: &PluginUse) -> Option<Entry> {
        let config = self.config;
        let module = config.modules.iter().find(|module| module.name == used.module);
        let bytes = self.bytes(used, module)?;
        let env = module.map_or(&[][..], |module| &module.env);
        let plugin = match self.plugins.load(&used.module, &bytes, env, used.limits, self.head) {
            Ok(plugin) => plugin,
            Err(error) => {
                self.refuse_module(used, module, error);
                return None;
            }
        };
        let made = match self.plugins.configure(&plugin, &used.config) {
            Ok(made) => made,
            Err(error) => {
                self.refuse_use(used, error);
                return None;
            }
        };
        for (phase, hook) in [(&made.phases.request, "request"), (&made.phases.response, "response")] {
            if matches!(phase, Phase::Buffered(_) | Phase::Streamed) {
                let problem = format!(
                    "plugin \"{}\" asks for the {hook}'s body, which this version does not hand over",
                    used.module
                );
                self.problems.push(config.error_at(&used.origin, "", problem, None));
                return None;
            }
        }
        Some(Entry { used: made, on_error: used.on_error })
    }

    /// The module's bytes, read once for all its uses.
    fn bytes(&mut self, used: &PluginUse, module: Option<&Module>) -> Bytes {
        if let Some(known) = self.modules.get(&used.module) {
            return known.clone();
        }
        let source = module.map_or(Source::BuiltIn, |module| Source::File(module.path.clone()));
        let read = Plugins::read(&source, &used.module).and_then(|bytes| pinned(module, bytes));
        let bytes = match read {
            Ok(bytes) => Some(Arc::from(bytes)),
            Err(error) => {
                self.refuse_module(used, module, error);
                None
            }
        };
        self.modules.insert(used.module.clone(), bytes.clone());
        bytes
    }

    /// Told at the module's entry, once however many routes use it.
    fn refuse_module(&mut self, used: &PluginUse, module: Option<&Module>, error: LoadError) {
        let origin = module.map_or(&used.origin, |module| &module.origin);
        let problem = format!("module \"{}\": {}", used.module, error.problem);
        self.problems.push(self.config.error_at(origin, "", problem, error.hint));
        self.modules.insert(used.module.clone(), None);
    }

    fn refuse_use(&mut self, used: &PluginUse, error: UseError) {
        match error {
            UseError::Problems(problems) => {
                for problem in problems {
                    self.problems.push(self.config.error_at(&used.origin, &problem.pointer, problem.message, None));
                }
            }
            UseError::Failed(why) => {
                let problem = format!("plugin \"{}\" failed in configure: {why}", used.module);
                self.problems.push(self.config.error_at(&used.origin, "", problem, None));
            }
        }
    }
}

fn pinned(module: Option<&Module>, bytes: Vec<u8>) -> Result<Vec<u8>, LoadError> {
    if let Some(pin) = module.and_then(|module| module.sha256) {
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        if digest != pin {
            return Err(LoadError {
                problem: format!(
                    "the file's sha256 is {}, not the one that is pinned",
                    crate::plugin::cache::hex(&digest)
                ),
                hint: Some("put the file back, or pin the new one".into()),
            });
        }
    }
    Ok(bytes)
}
