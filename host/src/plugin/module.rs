//! From bytes to a plugin: compiled, checked against the contract, linked,
//! described, and its uses configured once for the answer.

use std::{
    collections::{HashMap, HashSet},
    fmt, fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};
use wasmtime::component::{Component, InstancePre, Linker};

use super::{
    ModuleContext, PluginEngine, Source,
    bindings::{Description, HooksIndices, Phases, Problem},
    cache::{CompileCache, hex},
    host,
    instance::{CallError, Instance},
    prepared::Edits,
    store::InstanceState,
};
use crate::{
    builtins, clock::Clock, config::PluginLimits, exchange::HeadCaps, logging::Budget, metrics::Metrics, state::State,
};

/// The contract's package, and the version that this gateway speaks.
const PACKAGE: &str = "weir:plugin/";
const VERSION: &str = "0.1";
/// A component larger than this is no plugin.
const LARGEST_FILE: u64 = 64 << 20;

/// A module under one set of permissions and limits, ready to instantiate.
pub struct Plugin {
    /// Names it for the workers' pools; never given twice.
    pub id: u64,
    pub context: Arc<ModuleContext>,
    pub limits: PluginLimits,
    pub description: Arc<Description>,
    /// Uses in the configuration that serves.
    pub live_uses: AtomicU32,
    pub(super) pre: InstancePre<InstanceState>,
    pub(super) hooks: HooksIndices,
    pub(super) engine: Arc<PluginEngine>,
}

/// A plugin with one configuration.
#[derive(Clone)]
pub struct Use {
    pub plugin: Arc<Plugin>,
    /// What the contract calls `use-id`.
    pub id: u32,
    pub config: Arc<str>,
    pub phases: Phases,
    /// What is done to every request and response without a call.
    pub request_edits: Option<Arc<Edits>>,
    pub response_edits: Option<Arc<Edits>>,
}

/// Why a component can't be used, in words for whoever wrote the file's name.
#[derive(Debug)]
pub struct LoadError {
    pub problem: String,
    pub hint: Option<String>,
}

impl LoadError {
    fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Why a configuration can't be used.
pub enum UseError {
    /// The plugin's schema or its `configure` found these.
    Problems(Vec<Problem>),
    /// It did not get that far.
    Failed(String),
}

#[derive(PartialEq, Eq, Hash, Clone)]
struct PluginKey {
    name: Arc<str>,
    digest: String,
    env: Vec<(String, String)>,
    limits: PluginLimits,
    head: HeadCaps,
}

/// All plugins of the process, kept from one configuration to the next: what is
/// the same is not compiled, linked or configured again.
pub struct Plugins {
    engine: Arc<PluginEngine>,
    linker: Linker<InstanceState>,
    linker_wasi: Linker<InstanceState>,
    cache: CompileCache,
    state: Arc<State>,
    clock: Arc<Clock>,
    metrics: Arc<Metrics>,
    started: Instant,
    components: HashMap<String, Component>,
    schemas: HashMap<String, Arc<jsonschema::Validator>>,
    plugins: HashMap<PluginKey, Arc<Plugin>>,
    uses: HashMap<(u64, Arc<str>), Use>,
    next_plugin: u64,
    next_use: u32,
    runtime: tokio::runtime::Runtime,
}

impl Plugins {
    pub fn new(
        engine: PluginEngine,
        cache_root: &Path,
        state: Arc<State>,
        clock: Arc<Clock>,
        metrics: Arc<Metrics>,
    ) -> wasmtime::Result<Self> {
        let cache = CompileCache::open(cache_root, &engine.engine);
        Ok(Self {
            linker: host::linker(&engine.engine, false)?,
            linker_wasi: host::linker(&engine.engine, true)?,
            engine: Arc::new(engine),
            cache,
            state,
            clock,
            metrics,
            started: Instant::now(),
            components: HashMap::new(),
            schemas: HashMap::new(),
            plugins: HashMap::new(),
            uses: HashMap::new(),
            next_plugin: 0,
            next_use: 0,
            runtime: tokio::runtime::Builder::new_current_thread().enable_time().build()?,
        })
    }

    pub fn engine(&self) -> &Arc<PluginEngine> {
        &self.engine
    }

    /// A module's bytes.
    pub fn read(source: &Source, name: &str) -> Result<Vec<u8>, LoadError> {
        match source {
            Source::BuiltIn => match builtins::find(name) {
                Some(builtin) => Ok(builtin.bytes.to_vec()),
                None => Err(LoadError::new(format!("no built-in plugin \"{name}\""))),
            },
            Source::File(path) => {
                let unreadable = |error| LoadError::new(format!("can't read {}: {error}", path.display()));
                let metadata = fs::metadata(path).map_err(unreadable)?;
                // Reading a pipe or a device could take for ever.
                if !metadata.is_file() {
                    return Err(LoadError::new(format!("{} is no regular file", path.display())));
                }
                let size = metadata.len();
                if size > LARGEST_FILE {
                    return Err(LoadError::new(format!(
                        "{} has {size} bytes: more than {LARGEST_FILE}",
                        path.display()
                    )));
                }
                fs::read(path).map_err(unreadable)
            }
        }
    }

    /// Compiles, links and describes a module, unless that has been done.
    pub fn load(
        &mut self,
        name: &Arc<str>,
        bytes: &[u8],
        env: &[String],
        limits: PluginLimits,
        head: HeadCaps,
    ) -> Result<Arc<Plugin>, LoadError> {
        let digest = hex(&Sha256::digest(bytes));
        let env = env.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect();
        let key = PluginKey { name: name.clone(), digest: digest.clone(), env, limits, head };
        if let Some(plugin) = self.plugins.get(&key) {
            return Ok(plugin.clone());
        }
        let component = self.component(&digest, bytes)?;
        let wasi = check_contract(&component, &self.engine)?;
        let linker = if wasi { &self.linker_wasi } else { &self.linker };
        let unlinked = |error: wasmtime::Error| LoadError::new(format!("does not fit this gateway: {error:#}"));
        let pre = linker.instantiate_pre(&component).map_err(unlinked)?;
        let hooks = HooksIndices::new(&pre).map_err(unlinked)?;
        let instances = self.metrics.instances(name, &digest);
        let context = |version: String| {
            Arc::new(ModuleContext {
                name: name.clone(),
                version,
                digest: digest.clone(),
                wasi,
                env: key.env.clone(),
                space: self.state.space(name),
                clock: self.clock.clone(),
                started: self.started,
                head,
                instances: instances.clone(),
                log_budget: Budget::default(),
            })
        };
        self.next_plugin += 1;
        let mut plugin = Plugin {
            id: self.next_plugin,
            context: context(String::new()),
            limits,
            description: Arc::new(Description {
                name: String::new(),
                version: String::new(),
                summary: String::new(),
                config_schema: String::new(),
            }),
            live_uses: AtomicU32::new(0),
            pre,
            hooks,
            engine: self.engine.clone(),
        };
        let description = self
            .runtime
            .block_on(async { Instance::new(&plugin).await?.describe().await })
            .map_err(|error| LoadError::new(format!("failed in describe: {error}")))?;
        if !self.schemas.contains_key(&digest) {
            let schema = schema(&description.config_schema)?;
            self.schemas.insert(digest.clone(), Arc::new(schema));
        }
        plugin.context = context(description.version.clone());
        plugin.description = Arc::new(description);
        let plugin = Arc::new(plugin);
        self.plugins.insert(key, plugin.clone());
        Ok(plugin)
    }

    fn component(&mut self, digest: &str, bytes: &[u8]) -> Result<Component, LoadError> {
        if let Some(component) = self.components.get(digest) {
            return Ok(component.clone());
        }
        check_header(bytes)?;
        let component = self
            .cache
            .component(&self.engine.engine, digest, bytes)
            .map_err(|error| LoadError::new(format!("not a valid component: {error:#}")).hint("build it anew"))?;
        self.components.insert(digest.to_owned(), component.clone());
        Ok(component)
    }

    /// Checks a configuration and asks the plugin what it needs, unless that
    /// has been done.
    pub fn configure(&mut self, plugin: &Arc<Plugin>, config: &Arc<str>) -> Result<Use, UseError> {
        let key = (plugin.id, config.clone());
        if let Some(known) = self.uses.get(&key) {
            return Ok(known.clone());
        }
        if let Some(schema) = self.schemas.get(&plugin.context.digest) {
            let value: serde_json::Value =
                serde_json::from_str(config).map_err(|error| UseError::Failed(error.to_string()))?;
            let problems: Vec<Problem> = schema.iter_errors(&value).map(schema_problem).collect();
            if !problems.is_empty() {
                return Err(UseError::Problems(problems));
            }
        }
        self.next_use += 1;
        let id = self.next_use;
        let configured = async {
            let mut instance = Instance::new(plugin).await?;
            let answer = instance.configure(id, config).await?;
            Ok((instance, answer))
        };
        let (instance, answer) =
            self.runtime.block_on(configured).map_err(|error: CallError| UseError::Failed(error.to_string()))?;
        let phases = answer.map_err(UseError::Problems)?;
        let edits = |id: Option<u32>| match id.map(|id| instance.edits(id)) {
            None => Ok(None),
            Some(Some(edits)) if edits.is_complete() => Ok(Some(edits)),
            Some(Some(_)) => Err(UseError::Failed("its edits of every message take values".to_owned())),
            Some(None) => Err(UseError::Failed("it names edits that it has not prepared".to_owned())),
        };
        let made = Use {
            plugin: plugin.clone(),
            id,
            config: config.clone(),
            request_edits: edits(phases.request_edits)?,
            response_edits: edits(phases.response_edits)?,
            phases,
        };
        self.uses.insert(key, made.clone());
        Ok(made)
    }

    /// Forgets what the configuration that serves now does not use.
    pub fn retain(&mut self, serving: &[Use]) {
        let uses: HashSet<u32> = serving.iter().map(|serving| serving.id).collect();
        self.uses.retain(|_, known| uses.contains(&known.id));
        let mut counts: HashMap<u64, u32> = HashMap::new();
        for serving in serving {
            *counts.entry(serving.plugin.id).or_default() += 1;
        }
        self.plugins.retain(|_, plugin| match counts.get(&plugin.id) {
            Some(count) => {
                plugin.live_uses.store(*count, Ordering::Relaxed);
                true
            }
            None => false,
        });
        let digests: HashSet<&str> = self.plugins.keys().map(|key| key.digest.as_str()).collect();
        self.components.retain(|digest, _| digests.contains(digest.as_str()));
        self.schemas.retain(|digest, _| digests.contains(digest.as_str()));
    }
}

/// Tells files that are no component apart, which wasmtime would only call
/// unexpected.
fn check_header(bytes: &[u8]) -> Result<(), LoadError> {
    let how = "build a component: `cargo build --target wasm32-wasip2`";
    match bytes {
        [] => Err(LoadError::new("the file is empty").hint(how)),
        [0, b'a', b's', b'm', 0x0d, 0, 1, 0, ..] => Ok(()),
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => Err(LoadError::new("a core module, not a component").hint(how)),
        [0, b'a', b's', b'm', rest @ ..] if rest.len() < 4 => Err(LoadError::new("the file is cut short").hint(how)),
        [0, b'a', b's', b'm', ..] => Err(LoadError::new("a WebAssembly file of an unknown version").hint(how)),
        [0x7f, b'E', b'L', b'F', ..] => Err(LoadError::new("machine code, not a component").hint(how)),
        _ => Err(LoadError::new("not a WebAssembly file").hint(how)),
    }
}

/// Compares what a component imports and exports with the contract, and tells
/// whether it needs WASI.
fn check_contract(component: &Component, engine: &PluginEngine) -> Result<bool, LoadError> {
    let ty = component.component_type();
    let exports: Vec<String> = ty.exports(&engine.engine).map(|(name, _)| name.to_owned()).collect();
    let ours = exports.iter().find_map(|name| name.strip_prefix(PACKAGE)?.strip_prefix("hooks@"));
    match ours {
        Some(version) if speaks(version) => {}
        Some(version) => {
            return Err(LoadError::new(format!("built for weir:plugin@{version}; this gateway speaks {VERSION}"))
                .hint("build it with the SDK of this version"));
        }
        None => {
            let world = if exports.is_empty() { "nothing".to_owned() } else { exports.join(", ") };
            return Err(LoadError::new(format!("not a plugin: it exports {world}, not weir:plugin/hooks@{VERSION}"))
                .hint("export the world weir:plugin/plugin"));
        }
    }
    let mut wasi = false;
    for (name, _) in ty.imports(&engine.engine) {
        wasi |= name.starts_with("wasi:");
        if !offered(name) {
            return Err(LoadError::new(format!("imports {name}, which this gateway does not offer"))
                .hint(format!("it offers {PACKAGE}{{{}}}@{VERSION} and WASI 0.2", host::INTERFACES.join(", "))));
        }
    }
    Ok(wasi)
}

fn offered(import: &str) -> bool {
    if let Some(name) = import.strip_prefix(PACKAGE) {
        let Some((interface, version)) = name.split_once('@') else { return false };
        return host::INTERFACES.contains(&interface) && speaks(version);
    }
    const WASI: [&str; 5] = ["wasi:io/", "wasi:clocks/", "wasi:random/", "wasi:cli/", "wasi:filesystem/"];
    WASI.iter().any(|package| import.starts_with(package)) && import.contains("@0.2.")
}

fn speaks(version: &str) -> bool {
    version.strip_prefix(VERSION).is_some_and(|patch| patch.starts_with('.'))
}

fn schema(text: &str) -> Result<jsonschema::Validator, LoadError> {
    let wrong = |error: &dyn fmt::Display| LoadError::new(format!("its configuration schema is wrong: {error}"));
    let schema: serde_json::Value = serde_json::from_str(text).map_err(|error| wrong(&error))?;
    jsonschema::draft202012::options()
        .with_pattern_options(jsonschema::PatternOptions::regex())
        .build(&schema)
        .map_err(|error| wrong(&error))
}

/// A schema's complaint, with the values left out: they may be secrets.
fn schema_problem(error: jsonschema::ValidationError<'_>) -> Problem {
    Problem { pointer: error.instance_path().to_string(), message: error.masked().to_string() }
}

/// The longest that set-up calls may wait for something.
pub(super) const SETUP_WAIT: Duration = Duration::from_secs(10);
