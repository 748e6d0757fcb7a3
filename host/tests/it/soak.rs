//! Many connections for a while against the load-balanced example. How long is
//! set by `WEIR_SOAK_SECONDS`.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::support::{Client, Site, Upstream, ok};

const CONNECTIONS: usize = 200;

#[test]
fn the_weather_api_answers_everybody() {
    let seconds = std::env::var("WEIR_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let upstreams = [1, 2, 3].map(|instance| {
        Upstream::start(move |head| {
            assert!(head.starts_with("GET /forecast "), "{head}");
            ok(&format!("{{\"instance\": {instance}}}"))
        })
    });
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/weather-api/weir.yaml");
    let mut yaml = fs::read_to_string(example).unwrap().replace(":8080", ":0").replace(":9901", ":0");
    for (port, upstream) in [":9001", ":9002", ":9003"].iter().zip(&upstreams) {
        assert!(yaml.contains(port));
        yaml = yaml.replace(port, &format!(":{}", upstream.address.port()));
    }
    let site = Site::new();
    site.put("weir.yaml", yaml);
    let gateway = site.start();
    let until = Instant::now() + Duration::from_secs(seconds);
    let (answers, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut client = Client::connect(gateway.address);
                while Instant::now() < until {
                    client.send("GET /api/forecast HTTP/1.1\r\nHost: weather\r\n\r\n");
                    match client.try_response() {
                        Ok(response) if (200..300).contains(&response.status) => {
                            answers.fetch_add(1, Ordering::Relaxed);
                        }
                        _ => {
                            failures.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                    }
                }
            });
        }
    });
    let answers = answers.into_inner();
    println!("{answers} answers in {seconds} s over {CONNECTIONS} connections");
    assert_eq!(failures.into_inner(), 0);
    assert!(answers > CONNECTIONS);
    // All three take part.
    assert!(upstreams.iter().all(|upstream| upstream.requests() > 0));
}
