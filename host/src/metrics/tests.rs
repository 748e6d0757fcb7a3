use std::{collections::HashSet, thread};

use http::StatusCode;

use super::*;
use crate::error::ErrorKind;

fn filled() -> Metrics {
    let metrics = Metrics::new(2);
    for index in 0..2 {
        let worker = metrics.worker(index);
        worker.own().in_flight.add(3);
        worker.listener("127.0.0.1:8080").connections.add(1);
        worker.route("users").finish(StatusCode::OK, 1_500_000);
        worker.route("users").finish(StatusCode::IM_A_TEAPOT, 20_000_000_000);
        worker.route("never asked for");
        let upstream = worker.upstream("http://127.0.0.1:9001");
        upstream.opened();
        upstream.finish(100_000);
        upstream.failed(ErrorKind::BadResponse);
        let plugin = worker.plugin("key-auth");
        plugin.call(Hook::Request, 1_250);
        plugin.rejected(StatusCode::UNAUTHORIZED);
        plugin.failed(ErrorKind::CpuLimit);
    }
    metrics.instances("key-auth", "abc").made();
    metrics.config_serving(3);
    metrics.reloaded(Reload::Refused);
    metrics.log_dropped().fetch_add(7, Relaxed);
    metrics
}

#[test]
fn workers_are_added_up() {
    let page = filled().exposition();
    for line in [
        r#"weir_requests_total{route="users",code="200"} 2"#,
        r#"weir_requests_total{route="users",code="4xx"} 2"#,
        r#"weir_request_duration_seconds_bucket{route="users",le="0.001"} 0"#,
        r#"weir_request_duration_seconds_bucket{route="users",le="0.0025"} 2"#,
        r#"weir_request_duration_seconds_bucket{route="users",le="10"} 2"#,
        r#"weir_request_duration_seconds_bucket{route="users",le="+Inf"} 4"#,
        r#"weir_request_duration_seconds_sum{route="users"} 40.003"#,
        r#"weir_request_duration_seconds_count{route="users"} 4"#,
        "weir_requests_in_flight 6",
        r#"weir_connections{listener="127.0.0.1:8080"} 2"#,
        r#"weir_upstream_duration_seconds_bucket{upstream="http://127.0.0.1:9001",le="0.0001"} 2"#,
        r#"weir_upstream_connections_opened_total{upstream="http://127.0.0.1:9001"} 2"#,
        r#"weir_upstream_errors_total{upstream="http://127.0.0.1:9001",kind="bad_response"} 2"#,
        r#"weir_plugin_calls_total{plugin="key-auth",hook="on_request"} 2"#,
        r#"weir_plugin_duration_seconds_total{plugin="key-auth",hook="on_request"} 0.0000025"#,
        r#"weir_plugin_duration_seconds_bucket{plugin="key-auth",hook="on_request",le="0.0000025"} 2"#,
        r#"weir_plugin_rejections_total{plugin="key-auth",status="4xx"} 2"#,
        r#"weir_plugin_failures_total{plugin="key-auth",kind="cpu_limit"} 2"#,
        r#"weir_plugin_failures_total{plugin="key-auth",kind="trap"} 0"#,
        r#"weir_plugin_instances{module="key-auth",digest="abc"} 1"#,
        "weir_config_version 3",
        "weir_config_last_error 0",
        r#"weir_reloads_total{outcome="refused"} 1"#,
        r#"weir_reloads_total{outcome="applied"} 0"#,
        "weir_access_log_dropped_total 7",
    ] {
        assert!(page.lines().any(|other| other == line), "{line}\n{page}");
    }
    assert!(!page.contains("never asked for"));
}

/// Each metric once, with help and type before its samples, and no sample twice.
#[test]
fn the_page_is_well_formed() {
    let page = filled().exposition();
    let (mut seen, mut samples, mut current) = (HashSet::new(), HashSet::new(), String::new());
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            current = help.split(' ').next().unwrap_or_default().to_owned();
            assert!(seen.insert(current.clone()), "{current} twice");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            assert!(kind.starts_with(&format!("{current} ")), "{line}");
        } else {
            assert!(line.starts_with(&current), "{line}");
            let (series, value) = line.rsplit_once(' ').unwrap_or_default();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(samples.insert(series.to_owned()), "{line}");
        }
    }
    assert!(page.ends_with('\n'));
}

#[test]
fn label_values_are_escaped() {
    let metrics = Metrics::new(1);
    metrics.worker(0).route("a\"b\\c\nd").finish(StatusCode::OK, 1);
    assert!(metrics.exposition().contains(r#"{route="a\"b\\c\nd",code="200"} 1"#));
}

#[test]
fn a_name_keeps_its_series() {
    let metrics = Metrics::new(2);
    assert!(Arc::ptr_eq(&metrics.worker(1).route("a"), &metrics.worker(1).route("a")));
    assert!(!Arc::ptr_eq(&metrics.worker(0).route("a"), &metrics.worker(1).route("a")));
}

#[test]
fn names_are_bounded() {
    let family = Family::<RouteSeries>::new(1, 3);
    for name in ["a", "b", "c", "d", "e"] {
        family.get(name, 0).finish(StatusCode::OK, 1);
    }
    let counts: Vec<_> = family
        .all()
        .iter()
        .map(|(name, series)| (name.to_string(), series[0].requests().map_or(0, |requests| requests.codes[0].get())))
        .collect();
    assert_eq!(counts, [("a", 1), ("b", 1), ("c", 1), ("other", 2)].map(|(name, count)| (name.to_owned(), count)));
    assert!(Arc::ptr_eq(&family.get("b", 0), &family.get("b", 0)));
}

/// Each swap of a module brings a new digest.
#[test]
fn gauges_of_modules_that_are_gone_go_too() {
    let metrics = Metrics::new(1);
    for digest in 0..100 {
        let gauge = metrics.instances("geo", &digest.to_string());
        gauge.made();
        gauge.dropped();
    }
    let kept = metrics.instances("geo", "kept");
    kept.made();
    assert_eq!(metrics.exposition().matches("weir_plugin_instances{").count(), 1);
}

/// What is read while workers write is never more than was written, nor less
/// than before.
#[test]
fn counts_only_grow() {
    let metrics = Metrics::new(2);
    thread::scope(|scope| {
        for index in 0..2 {
            let worker = metrics.worker(index);
            scope.spawn(move || {
                let route = worker.route("a");
                (0..10_000).for_each(|n| route.finish(StatusCode::OK, n));
            });
        }
        let mut last = 0;
        while last < 20_000 {
            let page = metrics.exposition();
            let line = page.lines().find(|line| line.starts_with("weir_requests_total{"));
            let count = line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0);
            assert!((last..=20_000).contains(&count));
            last = count;
        }
    });
}
