//! What a plugin prepares in `configure`: edits and limiters, what is refused of
//! them, and what becomes of a hook that misuses them.

use serde_json::{Value, json};

use super::{failures, instances, site};
use crate::{
    guests,
    support::{Gateway, Response, Site},
};

const CONSUMERS: &str = "consumers: [{ name: alice, keys: [alice-key] }, { name: bob, keys: [bob-key] }]\n";

fn start(routes: &[(&str, &str)]) -> Gateway {
    let chains: Vec<_> = routes.iter().map(|(_, config)| format!("plugins: [guest: {{ {config} }}]")).collect();
    let routes: Vec<_> = routes.iter().zip(&chains).map(|((name, _), chain)| (*name, chain.as_str())).collect();
    let site = site(&[("guest", guests::path("prepared"))], &routes);
    let yaml = std::fs::read_to_string(site.path("weir.yaml")).unwrap();
    let yaml = yaml.replace("address: 127.0.0.1:0]", "{ address: 127.0.0.1:0, trusted_proxies: [127.0.0.0/8] }]");
    site.put("weir.yaml", format!("{CONSUMERS}{yaml}"));
    site.start()
}

fn report(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{}", response.text());
    serde_json::from_str(response.header("x-report").unwrap()).unwrap()
}

/// The values of a field that the upstream was sent, in order.
fn sent(response: &Response, name: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    match &response.json()["headers"][name] {
        Value::Null => Vec::new(),
        Value::Array(values) => values.iter().map(text).collect(),
        value => vec![text(value)],
    }
}

#[test]
fn prepared_edits_get_their_values() {
    let edits = "edits: [{ remove: x-api-key }, { set: [x-consumer, CONSUMER] }, { set: [X-Fixed, f] }, \
        { append: [x-many, GIVEN] }, { append: [x-many, CONSUMER] }, { set: [x-given, GIVEN] }]";
    let gateway = start(&[("a", &format!("key: X-Api-Key, {edits}, values: [one, '  two ']"))]);
    let mut client = gateway.connect();
    let fields = "x-api-key: bob-key\r\nx-consumer: root\r\nx-consumer: admin\r\nx-many: zero\r\n";
    let known = client.ask("/a", fields);
    assert_eq!(
        report(&known),
        json!({"key": "KeyOutcome::Known", "edited": "ok", "planned": "ok", "taken": null, "filled": 0})
    );
    for (name, values) in [
        ("x-api-key", vec![]),
        ("x-consumer", vec!["bob"]),
        ("x-fixed", vec!["f"]),
        ("x-many", vec!["zero", "one", "bob"]),
        ("x-given", vec!["two"]),
    ] {
        assert_eq!(sent(&known, name), values, "{name}");
    }
    let many: Vec<_> = known.headers.iter().filter(|(name, _)| name == "x-many").map(|(_, value)| &**value).collect();
    assert_eq!((known.header("x-consumer"), many), (Some("bob"), vec!["one", "bob"]));

    // Nobody is known: whom the client names is taken away, and none added.
    for (key, outcome) in
        [("", "KeyOutcome::Absent"), ("x-api-key: bob-key\r\nx-api-key: bob-key\r\n", "KeyOutcome::Unknown")]
    {
        let unknown = client.ask("/a", &format!("{key}x-consumer: root\r\n"));
        assert_eq!(report(&unknown)["key"], outcome);
        assert_eq!((sent(&unknown, "x-consumer"), sent(&unknown, "x-many")), (vec![], vec!["one".to_owned()]));
        assert_eq!(unknown.header("x-consumer"), None);
    }
}

#[test]
fn there_must_be_as_many_values_as_the_edits_take() {
    let edits = "edits: [{ set: [x-a, GIVEN] }, { set: [x-b, GIVEN] }]";
    let gateway = start(&[
        ("few", &format!("{edits}, values: [one]")),
        ("many", &format!("{edits}, values: [one, two, three]")),
        ("split", &format!("{edits}, values: [one, \"two\\nthree\"]")),
        ("none", edits),
        ("control", &format!("{edits}, values: [one, \"t\\rwo\"]")),
        ("end", &format!("{edits}, values: [one, \"two\\r\"]")),
        ("empty", &format!("{edits}, values: [one, '']")),
    ]);
    for route in ["few", "many", "split", "none", "control", "end"] {
        let response = gateway.get(&format!("/{route}"));
        let report = report(&response);
        assert_eq!(
            (&report["edited"], &report["planned"]),
            (&"invalid-value".into(), &"invalid-value".into()),
            "{route}"
        );
        assert_eq!((sent(&response, "x-a"), response.header("x-a")), (vec![], None), "{route}");
    }
    let empty = gateway.get("/empty");
    assert_eq!((report(&empty)["edited"].as_str(), sent(&empty, "x-b")), (Some("ok"), vec![String::new()]));
}

#[test]
fn wrong_edits_are_refused_when_they_are_prepared() {
    let many = format!("edits: [{}]", vec!["{ remove: x-a }"; 257].join(", "));
    let gateway = start(&[
        ("name", "edits: [{ set: ['x a', v] }]"),
        ("value", "edits: [{ set: [x-a, \"v\\n\"] }, { set: [x-b, \"v\\0\"] }]"),
        ("framing", "edits: [{ remove: Content-Length }]"),
        ("many", &many),
    ]);
    for (route, error) in
        [("name", "invalid-name"), ("value", "invalid-value"), ("framing", "forbidden"), ("many", "too-many")]
    {
        assert_eq!(report(&gateway.get(&format!("/{route}")))["edited"], error, "{route}");
    }
}

#[test]
fn an_instance_can_prepare_so_much_and_no_more() {
    let gateway = start(&[("a", "fill: 32000")]);
    let filled = report(&gateway.get("/a"))["filled"].as_u64().unwrap();
    // 4 MiB, each with what it takes to keep it.
    assert!((124..131).contains(&filled), "{filled}");
    assert_eq!(instances(&gateway), 1);
}

#[test]
fn the_first_key_that_is_complete_counts() {
    let gateway = start(&[
        ("a", "key: x-api-key, quota: 9, keys: [[header:X-Tenant, consumer], [consumer], [network]]"),
        ("none", "quota: 9, keys: [[consumer], [route, header:x-tenant]]"),
    ]);
    let mut client = gateway.connect();
    let mut left = |fields: &str| report(&client.ask("/a", fields))["taken"].clone();
    let (alice, bob) = ("x-api-key: alice-key\r\n", "x-api-key: bob-key\r\n");
    let tenant = format!("{alice}x-tenant: t\r\n");
    // A field alone does not make the first one complete.
    assert_eq!([left(&tenant), left(&tenant), left(alice), left(bob), left("x-tenant: t\r\n")], [8, 7, 8, 8, 8]);
    assert_eq!([left(""), left(alice), left(&format!("{tenant}x-tenant: t\r\n"))], [7, 7, 8]);
    // Of an IPv6 address the half that its owner can't choose.
    let mut from = |address: &str| left(&format!("x-forwarded-for: {address}\r\n"));
    assert_eq!([from("2001:db8::1"), from("2001:db8::2"), from("2001:db8:0:1::1")], [8, 7, 8]);
    assert_eq!([from("192.0.2.1"), from("::ffff:192.0.2.1"), from("192.0.2.2")], [8, 7, 8]);

    assert_eq!(report(&gateway.get("/none"))["taken"], "invalid");
    assert_eq!(report(&gateway.connect().ask("/none", "x-tenant: t\r\n"))["taken"], 8);
}

#[test]
fn keys_differ_unless_all_their_parts_are_the_same() {
    let gateway = start(&[
        ("ab", "quota: 9, keys: [[a, bc]]"),
        ("abc", "quota: 9, keys: [[ab, c]]"),
        ("one", "quota: 9, keys: [[abc]]"),
        ("again", "quota: 9, keys: [[a, bc]]"),
        ("route", "quota: 9, keys: [[route]]"),
        ("text", "quota: 9, keys: [['route ']]"),
        ("long", &format!("quota: 9, keys: [[{0}, {0}]]", "l".repeat(256))),
        ("longer", &format!("quota: 9, keys: [[{0}, {0}, m]]", "l".repeat(256))),
    ]);
    let left = |route: &str| report(&gateway.get(&format!("/{route}")))["taken"].clone();
    let found: Vec<_> = ["ab", "abc", "one", "again", "route", "text", "long", "longer", "long"].map(left).into();
    assert_eq!(found, [8, 8, 8, 7, 8, 8, 8, 8, 7]);
}

#[test]
fn wrong_limiters_are_refused_when_they_are_prepared() {
    let parts = |count| vec!["route"; count].join(", ");
    let keys = |count| vec!["[route]"; count].join(", ");
    let gateway = start(&[
        ("quota", "quota: 0, keys: [[route]]"),
        ("parts", &format!("quota: 9, keys: [[{}]]", parts(9))),
        ("keys", &format!("quota: 9, keys: [{}]", keys(9))),
        ("name", "quota: 9, keys: [['header:x y']]"),
        ("long", &format!("quota: 9, keys: [[{}]]", "l".repeat(257))),
        ("most", &format!("quota: 9, keys: [[{}], {}]", parts(8), keys(7))),
    ]);
    for route in ["quota", "parts", "keys", "name", "long"] {
        assert_eq!(report(&gateway.get(&format!("/{route}")))["taken"], "refused: invalid", "{route}");
    }
    assert_eq!(report(&gateway.get("/most"))["taken"], 8);
}

#[test]
fn preparing_in_a_hook_traps() {
    let gateway = start(&[("edits", "misuse: late"), ("limiter", "misuse: late_limiter, quota: 9, keys: [[route]]")]);
    for (count, route) in [(1, "edits"), (2, "limiter")] {
        assert_eq!(gateway.get(&format!("/{route}")).status, 500);
        assert_eq!(failures(&gateway, "trap"), count);
        gateway.log.find(&["nothing can be prepared in a hook", "kind=trap"]);
    }
}

#[test]
fn edits_of_every_message_need_no_call() {
    let edits = "request_edits: [{ remove: x-b }, { set: [x-a, always] }], \
        response_edits: [{ set: [x-a, always] }, { append: [x-list, '1'] }]";
    let gateway = start(&[
        ("off", &format!("ending: not_called, {edits}")),
        ("hook", &format!("{edits}, edits: [{{ set: [x-a, hook] }}, {{ append: [x-list, '2'] }}]")),
        ("own", &format!("ending: respond, {edits}")),
    ]);
    let mut client = gateway.connect();
    let fields = "x-a: client\r\nx-b: client\r\n";
    let list = |response: &Response| -> Vec<String> {
        let lines = response.headers.iter().filter(|(name, _)| name == "x-list");
        lines.map(|(_, value)| value.clone()).collect()
    };
    let off = client.ask("/off", fields);
    assert_eq!((sent(&off, "x-a"), sent(&off, "x-b")), (vec!["always".to_owned()], vec![]));
    assert_eq!((off.header("x-a"), list(&off), off.header("x-report")), (Some("always"), vec!["1".to_owned()], None));
    assert_eq!(gateway.metric("weir_plugin_calls_total{plugin=\"guest\""), 0);

    // After the hook on the way there, before what it has planned on the way back.
    let hook = client.ask("/hook", fields);
    assert_eq!(sent(&hook, "x-a"), ["always"]);
    assert_eq!((hook.header("x-a"), list(&hook)), (Some("hook"), vec!["1".to_owned(), "2".to_owned()]));

    let own = client.ask("/own", fields);
    assert_eq!((own.text().as_str(), own.header("x-a"), list(&own)), ("own\n", Some("always"), vec!["1".to_owned()]));
}

#[test]
fn an_edit_of_every_message_that_is_refused_is_a_failure() {
    // Each fits, and what the hook has edited too, but not both.
    let (hook, always) = ("h".repeat(10_000), "a".repeat(20_000));
    let chain = |what: &str, rest: &str| {
        let edits = format!("edits: [{{ set: [x-small, {hook}] }}], {what}_edits: [{{ set: [x-a, {always}] }}]");
        format!("plugins: [{{ guest: {{ {edits} }}{rest} }}]")
    };
    let routes = [
        ("deny", &*chain("request", "")),
        ("skip", &chain("request", ", on_error: skip")),
        ("answer", &chain("response", "")),
    ];
    let gateway = site(&[("guest", guests::path("prepared"))], &routes).start();
    assert_eq!(gateway.get("/deny").status, 500);
    gateway.log.find(&["edits of every message refused", "plugin=guest", "route=deny"]);
    // What the hook has done goes with it.
    let skipped = gateway.get("/skip");
    assert_eq!((skipped.status, sent(&skipped, "x-small"), sent(&skipped, "x-a")), (200, vec![], vec![]));
    assert_eq!((skipped.header("x-small"), skipped.header("x-report")), (None, None));
    assert_eq!(gateway.get("/answer").status, 500);
    assert_eq!(failures(&gateway, "failed"), 3);
}

#[test]
fn edits_of_every_message_are_checked_at_load() {
    let long = "v".repeat(20_000);
    let heavy = format!("request_edits: [{{ set: [x-a, {long}] }}, {{ append: [x-a, {long}] }}]");
    for (config, problem) in [
        ("misuse: no_such_edits", "it names edits that it has not prepared"),
        ("request_edits: [{ set: [x-a, GIVEN] }]", "its edits of every message take values"),
        (&heavy, "more bytes of them, than the gateway allows in a head"),
        // 100 fields that may come, and 64 for plugins.
        (&many(165, "set"), "has more fields"),
        (&many(165, "append"), "has more fields"),
    ] {
        let chain = format!("plugins: [guest: {{ {config} }}]");
        let site = site(&[("guest", guests::path("prepared"))], &[("a", &chain)]);
        let (code, told) = site.check();
        assert!(code == Some(78) && told.contains(problem), "{told}");
    }
    for config in [many(160, "set"), many(160, "append"), many(250, "remove")] {
        let chain = format!("plugins: [guest: {{ {config} }}]");
        let gateway = site(&[("guest", guests::path("prepared"))], &[("a", &chain)]).start();
        assert_eq!(gateway.get("/a").status, 200, "{chain}");
    }
}

#[test]
fn edits_beside_a_rename_are_checked_too() {
    let set = (0..165).map(|at| format!("x{at}: v")).collect::<Vec<_>>().join(", ");
    for plugin in ["request-transform", "response-transform"] {
        let chain = format!("plugins: [{plugin}: {{ headers: {{ rename: {{ a: b }}, set: {{ {set} }} }} }}]");
        let (code, told) = site(&[("guest", guests::path("prepared"))], &[("a", &chain)]).check();
        assert!(code == Some(78) && told.contains("headers: has more fields"), "{told}");
    }
}

/// Edits of so many fields of every response of the gateway's own.
fn many(fields: usize, how: &str) -> String {
    let edit = |field| match how {
        "remove" => format!("{{ remove: x{field} }}"),
        _ => format!("{{ {how}: [x{field}, v] }}"),
    };
    let edits = (0..fields).map(edit).collect::<Vec<_>>().join(", ");
    format!("ending: respond, response_edits: [{edits}]")
}

#[test]
fn edits_are_checked_by_the_limits_that_serve_now() {
    let set = |count: usize| (0..count).map(|at| format!("x{at}: {}", "v".repeat(4000))).collect::<Vec<_>>().join(", ");
    let config = |head: &str, fields: usize| {
        format!(
            "workers: 1\nlisten: [{{ address: 127.0.0.1:0, limits: {{ head: {head} }} }}]\nadmin: {{ address: 127.0.0.1:0 }}\n\
             routes:\n- {{ name: a, upstream: \"internal:echo\", \
             plugins: [{{ response-transform: {{ headers: {{ set: {{ {} }} }} }} }}] }}\n",
            set(fields)
        )
    };
    let site = Site::new();
    site.put("weir.yaml", config("128KiB", 15));
    let gateway = site.start();
    assert_eq!(gateway.get("/").status, 200);
    // Smaller than the edits: refused, however well they did before.
    gateway.site.put("weir.yaml", config("32KiB", 15));
    gateway.log.wait_for("config refused");
    assert_eq!(gateway.get("/").status, 200);
    gateway.serve(2, &config("32KiB", 5));
    assert_eq!(gateway.get("/").status, 200);
    gateway.serve(3, &config("128KiB", 20));
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn a_plugin_that_fails_takes_no_other_plugins_plans_along() {
    let (second, big) = ("s".repeat(10_000), "v".repeat(20_000));
    let first = "{ guest: { edits: [{ set: [x-first, f] }] } }";
    let edits = format!("edits: [{{ set: [x-second, {second}] }}], response_edits: [{{ set: [x-big, {big}] }}]");
    let second = format!("{{ guest: {{ {edits} }} }}");
    let chain = format!("plugins: [{first}, {second}]");
    let gateway = site(&[("guest", guests::path("prepared"))], &[("a", &chain)]).start();
    let response = gateway.get("/a");
    assert_eq!((response.status, response.header("x-first"), response.header("x-second")), (500, Some("f"), None));
}

#[test]
fn no_client_can_make_edits_fail_by_sending_many_fields() {
    let edits = "edits: [{ set: [x-internal, gateway] }, { set: [x-new, n] }]";
    let gateway = start(&[("a", &format!("{edits}, request_edits: [{{ append: [x-list, l] }}]"))]);
    let mut client = gateway.connect();
    for count in [90, 96, 97] {
        let fillers: String = (0..count).map(|at| format!("f{at}: x\r\n")).collect();
        let response = client.ask("/a", &format!("x-internal: client\r\n{fillers}"));
        assert_eq!(response.status, 200, "{count}");
        assert_eq!(
            (sent(&response, "x-internal"), sent(&response, "x-list")),
            (vec!["gateway".into()], vec!["l".into()])
        );
    }
}

#[test]
fn edits_are_bounded_also_where_they_only_take_away() {
    let removals = vec!["{ remove: x-a }"; 170].join(", ");
    let plugin = format!("{{ guest: {{ edits: [{removals}] }} }}");
    let chain = |plugins: usize| format!("plugins: [{}]", vec![&*plugin; plugins].join(", "));
    let gateway = site(&[("guest", guests::path("prepared"))], &[("four", &chain(4)), ("five", &chain(5))]).start();
    // Each plans 170 and its report, and could have 170 undone: 6 * 170 + 4 is the
    // bound, before the fifth reports.
    assert_eq!(gateway.get("/four").status, 200);
    assert_eq!(gateway.get("/five").status, 500);
    gateway.log.find(&["edit refused: More fields", "route=five"]);
}

#[test]
fn what_an_instance_serves_already_takes_no_room_from_a_new_use() {
    // All together prepare more than an instance may.
    let fields = |at| (0..60).map(|field| format!("x{field}: '{at}'")).collect::<Vec<_>>().join(", ");
    let chain = |at| {
        let edits = format!("query: {{ remove: [absent] }}, headers: {{ set: {{ {} }} }}", fields(at));
        format!("plugins: [request-transform: {{ {edits} }}]")
    };
    let routes: Vec<_> = (0..540).map(|at| (format!("r{at}"), chain(at))).collect();
    let routes: Vec<_> = routes.iter().map(|(name, chain)| (name.as_str(), chain.as_str())).collect();
    let gateway = site(&[("guest", guests::path("prepared"))], &routes).start();
    let mut client = gateway.connect();
    for (at, (route, _)) in routes.iter().enumerate() {
        assert_eq!(sent(&client.ask(&format!("/{route}"), ""), "x0"), [at.to_string()], "{route}");
    }
}
