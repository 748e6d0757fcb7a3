//! What a request costs, in counts that no neighbour on the machine disturbs:
//! user instructions, calls of the allocator, system calls. `budget.toml` says
//! how many may be; a median of three runs that is more than 5 % above fails.
//!
//! Counted of the release binary with one worker and no access log; the client
//! and the upstream are in this process. Run by `make counts`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod budget;
mod measure;
mod traffic;

use budget::Budget;
use measure::{Counts, Scenario};

/// A request as an API client sends it, ten fields in all.
const FIELDS: &str = "Host: api.example.com\r\n\
    User-Agent: counts/1.0\r\n\
    Accept: application/json\r\n\
    Accept-Encoding: gzip, br\r\n\
    Accept-Language: en\r\n\
    Authorization: Bearer dGhpcyBpcyBub3QgYSByZWFsIHRva2VuIGF0IGFsbA\r\n\
    X-Api-Key: a-key-of-thirty-two-characters-0\r\n\
    X-Request-Start: 1700000000\r\n\
    Cache-Control: no-cache\r\n\
    Cookie: session=0123456789abcdef\r\n";

const CONSUMERS: &str = "consumers:
  - { name: alice, keys: [a-key-of-thirty-two-characters-0] }
";

fn scenarios() -> Vec<Scenario> {
    let route = |plugins: &str| format!("routes:\n  - {{ name: all, upstream: UPSTREAM, plugins: [{plugins}] }}\n");
    let limit = "rate-limit: { limit: 1000000000, window: 1h, by: consumer }";
    let trivial = "response-transform: { headers: { set: { x-served-by: weir } } }";
    vec![
        Scenario::new("bare", "/api/items/42?page=2", route("")),
        Scenario::new("key_auth_and_rate_limit", "/api/items/42?page=2", {
            format!("{CONSUMERS}{}", route(&format!("{{ key-auth: {{}} }}, {{ {limit} }}")))
        }),
        Scenario::new("trivial_plugin", "/api/items/42?page=2", route(&format!("{{ {trivial} }}"))),
        Scenario::new("two_trivial_plugins", "/api/items/42?page=2", {
            route(&format!("{{ {trivial} }}, {{ {} }}", trivial.replace("served", "passed")))
        }),
        // A hook with one call, which asks for the query.
        Scenario::new("one_hook", "/api/items/42?page=2", {
            route("{ request-transform: { query: { remove: [absent] } } }")
        }),
        Scenario::new("route_of_10000", "/r7777/items/42?page=2", many_routes(10_000)),
    ]
}

fn many_routes(count: usize) -> String {
    let route = |at| format!("  - {{ name: r{at}, match: {{ path_prefix: /r{at} }}, upstream: UPSTREAM }}\n");
    std::iter::once("routes:\n".to_owned()).chain((0..count).map(route)).collect()
}

#[test]
#[ignore = "needs valgrind and strace, and the release profile: make counts"]
fn a_request_costs_no_more_than_its_budget() {
    if cfg!(debug_assertions) {
        panic!("counts are those of the release profile");
    }
    let budget = Budget::read();
    let mut over = Vec::new();
    println!("{:<26} {:>12} {:>12} {:>12}", "per request", "instructions", "allocations", "system calls");
    for scenario in scenarios() {
        let counted = scenario.measure();
        println!(
            "{:<26} {:>12.0} {:>12.2} {:>12.2}",
            scenario.name, counted.instructions, counted.allocations, counted.system_calls
        );
        over.extend(budget.compare(scenario.name, counted));
    }
    assert!(over.is_empty(), "over host/tests/budget.toml:\n{}", over.join("\n"));
}

#[test]
fn more_than_five_per_cent_over_the_budget_is_told() {
    let budget = Budget::parse("[bare]\ninstructions = 1000\nallocations = 10\nsystem_calls = 4\n");
    let counts = |instructions| Counts { instructions, allocations: 10.0, system_calls: 4.0 };
    assert_eq!(budget.compare("bare", counts(1050.0)), Vec::<String>::new());
    assert_eq!(budget.compare("bare", counts(1051.0)), ["bare: 1051 instructions, budget 1000"]);
    assert_eq!(budget.compare("other", counts(1.0)), ["other: has no budget"]);
}
