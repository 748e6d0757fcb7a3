//! One worker's part of a configuration.

use std::{collections::HashMap, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use http::StatusCode;
use ipnet::IpNet;

use super::{Gateway, Snapshot};
use crate::{
    config::{ListenerLimits, ListenerTimeouts, OnError, UnderscoreHeaders},
    error::ErrorKind,
    metrics::{self, ListenerSeries, PluginSeries, RouteSeries, UpstreamSeries},
    plugin::{Hook, Pool, Use, bindings::Phase, instance::CallError},
    upstream::Upstream,
    worker::Worker,
};

/// Uses for which a warm instance is configured before it serves; more of them
/// are configured when they are first called.
const WARM_USES: usize = 32;

/// A configuration with one worker's instances and connections.
pub struct Active {
    snapshot: Snapshot,
    version: u64,
    routes: Vec<ActiveRoute>,
    listeners: Vec<Rc<Settings>>,
    /// Requests that no route has matched.
    unrouted: Arc<RouteSeries>,
}

/// A route with what belongs to the worker.
pub struct ActiveRoute {
    pub chain: Vec<Link>,
    pub upstream: Rc<Upstream>,
    pub series: Arc<RouteSeries>,
    pub upstream_series: Arc<UpstreamSeries>,
}

/// A plugin's place in a chain, with the instances that serve it.
pub struct Link {
    pub pool: Rc<Pool>,
    pub used: Use,
    pub on_error: OnError,
    /// Which hooks are called.
    pub request: bool,
    pub response: bool,
    pub finish: bool,
    series: Arc<PluginSeries>,
}

/// A listener's settings.
pub struct Settings {
    pub address: SocketAddr,
    pub trusted_proxies: Vec<IpNet>,
    pub underscore_headers: UnderscoreHeaders,
    pub limits: ListenerLimits,
    pub timeouts: ListenerTimeouts,
    pub series: Arc<ListenerSeries>,
}

impl Active {
    /// What a worker has before its part of the first configuration stands.
    pub fn unprepared(first: Arc<Gateway>) -> Self {
        Self {
            snapshot: Arc::new(first),
            version: 0,
            routes: Vec::new(),
            listeners: Vec::new(),
            unrouted: Arc::default(),
        }
    }

    /// Builds a worker's part: what is the same as before is taken over, live
    /// connections and instances included.
    pub fn build(worker: &Rc<Worker>, gateway: Arc<Gateway>) -> Self {
        let metrics = worker.shared.metrics.worker(worker.id);
        let config = &gateway.config;
        let routes = config.routes.iter().zip(&gateway.chains).filter_map(|(route, entries)| {
            let upstream = config.upstreams.get(route.upstream)?;
            let chain = entries.iter().map(|entry| Link {
                pool: worker.pool(&entry.used.plugin),
                request: !matches!(entry.used.phases.request, Phase::Off),
                response: !matches!(entry.used.phases.response, Phase::Off),
                finish: entry.used.phases.finish,
                used: entry.used.clone(),
                on_error: entry.on_error,
                series: metrics.plugin(&entry.used.plugin.context.name),
            });
            Some(ActiveRoute {
                chain: chain.collect(),
                upstream: worker.upstreams.upstream(upstream, &worker.shared.targets),
                series: metrics.route(&route.name),
                upstream_series: metrics.upstream(&upstream.name),
            })
        });
        let listeners = config.listeners.iter().map(|listener| {
            Rc::new(Settings {
                address: listener.address,
                trusted_proxies: listener.trusted_proxies.clone(),
                underscore_headers: listener.underscore_headers,
                limits: listener.limits,
                timeouts: listener.timeouts,
                series: metrics.listener(&listener.address.to_string()),
            })
        });
        let (routes, listeners, version) = (routes.collect(), listeners.collect(), gateway.version);
        let unrouted = metrics.route("");
        Self { snapshot: Arc::new(gateway), version, routes, listeners, unrouted }
    }

    /// Has an instance of each plugin stand ready.
    pub async fn warm(&self) -> Result<(), CallError> {
        let mut pools: HashMap<u64, (Rc<Pool>, Vec<&Use>)> = HashMap::new();
        for link in self.routes.iter().flat_map(|route| &route.chain) {
            let (_, uses) = pools.entry(link.pool.plugin.id).or_insert_with(|| (link.pool.clone(), Vec::new()));
            if uses.len() < WARM_USES && !uses.iter().any(|known| known.id == link.used.id) {
                uses.push(&link.used);
            }
        }
        for (pool, uses) in pools.values() {
            pool.warm(uses.iter().copied()).await?;
        }
        Ok(())
    }

    /// The configuration's number; 0 before the first.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The part that all workers share.
    #[inline]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Counts a request that is over.
    pub fn count(&self, route: usize, status: StatusCode, took: u64) {
        let series = self.routes.get(route).map_or(&self.unrouted, |route| &route.series);
        series.finish(status, took);
    }

    /// A listener's settings, unless it is closing.
    pub fn listener(&self, address: SocketAddr) -> Option<Rc<Settings>> {
        self.listeners.iter().find(|listener| listener.address == address).cloned()
    }

    pub fn route(&self, place: usize) -> Option<&ActiveRoute> {
        self.routes.get(place)
    }

    /// A route's plugins; none for a request without route.
    pub fn chain(&self, route: usize) -> &[Link] {
        self.routes.get(route).map_or(&[], |route| &route.chain)
    }
}

impl Link {
    pub fn name(&self) -> &Arc<str> {
        &self.pool.plugin.context.name
    }

    /// Counts a call and the time that it took.
    pub fn record(&self, hook: Hook, took: Duration, failure: Option<ErrorKind>) {
        let hook = match hook {
            Hook::Request => metrics::Hook::Request,
            Hook::Response => metrics::Hook::Response,
            Hook::Finish => metrics::Hook::Finish,
        };
        self.series.call(hook, took.as_nanos() as u64);
        if let Some(kind) = failure {
            self.series.failed(kind);
        }
    }

    /// Counts a failure without a call.
    pub fn failed(&self, kind: ErrorKind) {
        self.series.failed(kind);
    }

    /// Counts an early answer.
    pub fn rejected(&self, status: StatusCode) {
        self.series.rejected(status);
    }
}
