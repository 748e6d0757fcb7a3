#![allow(clippy::unwrap_used, clippy::panic)]

use http::{HeaderName, HeaderValue};

use super::*;
use crate::config::load_text;

/// Routes by name, each with its match as YAML.
struct Table {
    names: Vec<String>,
    router: Router,
}

fn table<'a>(routes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Table {
    let mut text = String::from("listen: [{ address: 127.0.0.1:8080 }]\nroutes:\n");
    for (name, matches) in routes {
        text.push_str(&format!("- {{ name: {name}, upstream: internal:echo, match: {{ {matches} }} }}\n"));
    }
    let config = load_text(std::path::Path::new("weir.yaml"), &text).unwrap_or_else(|errors| panic!("{errors}"));
    let names = config.routes.iter().map(|route| route.name.to_string()).collect();
    Table { names, router: Router::new(&config.routes) }
}

/// `GET host/path?query`, with fields behind: `GET h/p?q a: b`.
fn found<'a>(table: &'a Table, request: &str) -> &'a str {
    let mut words = request.split_whitespace();
    let method = Method::from_bytes(words.next().unwrap().as_bytes()).unwrap();
    let target = words.next().unwrap();
    let (target, query) = target.split_once('?').map_or((target, None), |(target, query)| (target, Some(query)));
    let slash = target.find('/').unwrap();
    let mut headers = HeaderMap::new();
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        let name = HeaderName::try_from(name.trim_end_matches(':')).unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    let (host, path) = target.split_at(slash);
    let asked = Asked { host, path, method: &method, headers: &headers, query };
    table.router.find(&asked).map_or("none", |route| &table.names[route])
}

/// Checks requests against the routes in many orders.
fn check(routes: &[(&str, &str)], requests: &[(&str, &str)]) {
    let mut order: Vec<_> = routes.to_vec();
    let mut state = 1_u64;
    for round in 0..24 {
        let table = table(order.iter().copied());
        for (request, expected) in requests {
            assert_eq!(found(&table, request), *expected, "{request}, order {round}: {order:?}");
        }
        for place in (1..order.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(place, (state >> 33) as usize % (place + 1));
        }
    }
}

#[test]
fn an_exact_host_goes_before_the_longest_wildcard_before_none() {
    check(
        &[
            ("exact", "hosts: [a.b.example.com], path_prefix: /"),
            ("long", "hosts: ['*.b.example.com'], path: /x"),
            ("long_below", "hosts: ['*.b.example.com'], path_prefix: /y"),
            ("short", "hosts: ['*.example.com'], path: /x"),
            ("any", "path: /x"),
        ],
        &[
            // Although the others match the path better.
            ("GET a.b.example.com/x", "exact"),
            ("GET c.b.example.com/x", "long"),
            ("GET a.c.b.example.com/x", "long"),
            ("GET b.example.com/x", "short"),
            ("GET a.example.com/x", "short"),
            ("GET example.com/x", "any"),
            ("GET xexample.com/x", "any"),
            ("GET b.example.com.evil.com/x", "any"),
            ("GET other/x", "any"),
            ("GET /x", "any"),
            // What a more specific host has no route for.
            ("GET c.b.example.com/y/z", "long_below"),
            ("GET c.b.example.com/z", "none"),
            ("GET other/y", "none"),
        ],
    );
}

#[test]
fn a_less_specific_host_serves_what_another_has_no_route_for() {
    check(
        &[
            ("exact", "hosts: [a.example.com], path: /exact"),
            ("post", "hosts: [a.example.com], path: /post, methods: [POST]"),
            ("wildcard", "hosts: ['*.example.com'], path_prefix: /wild"),
            ("any", "path_prefix: /"),
        ],
        &[
            ("GET a.example.com/exact", "exact"),
            ("POST a.example.com/post", "post"),
            ("GET a.example.com/post", "any"),
            ("GET a.example.com/wild", "wildcard"),
            ("GET a.example.com/x", "any"),
        ],
    );
}

#[test]
fn a_host_may_be_an_address() {
    let table = table([("v6", "hosts: ['[::1]']"), ("v4", "hosts: [127.0.0.1]"), ("any", "path_prefix: /")]);
    assert_eq!(found(&table, "GET [::1]/"), "v6");
    assert_eq!(found(&table, "GET 127.0.0.1/"), "v4");
    assert_eq!(found(&table, "GET [::2]/"), "any");
}

#[test]
fn an_exact_path_goes_before_templates_before_prefixes() {
    check(
        &[
            ("exact", "path: /users/me/posts"),
            ("user", "path: '/users/{id}/posts'"),
            ("kind", "path: '/users/me/{kind}'"),
            ("both", "path: '/users/{id}/{kind}'"),
            ("all", "path: '/{a}/{b}/{c}'"),
            ("long", "path_prefix: /users/me/posts"),
            ("short", "path_prefix: /users"),
            ("root", "path_prefix: /"),
        ],
        &[
            ("GET h/users/me/posts", "exact"),
            ("GET h/users/7/posts", "user"),
            ("GET h/users/me/likes", "kind"),
            ("GET h/users/7/likes", "both"),
            ("GET h/other/7/likes", "all"),
            // A parameter is one segment that is not empty.
            ("GET h/users/me/", "short"),
            ("GET h/users/7/posts/", "short"),
            ("GET h/users/me/posts/1", "long"),
            ("GET h/users/me/posts/", "long"),
            ("GET h/users/me/postscript", "kind"),
            ("GET h/users", "short"),
            ("GET h/usersx", "root"),
            ("GET h/", "root"),
        ],
    );
}

/// As many literals: those further to the front.
#[test]
fn templates_with_as_many_literals_have_an_order() {
    check(
        &[("front", "path: '/a/{x}'"), ("back", "path: '/{x}/b'"), ("slash", "path: '/a/{x}/'")],
        &[
            ("GET h/a/b", "front"),
            ("GET h/c/b", "back"),
            ("GET h/a/b/", "slash"),
            ("GET h/a/", "none"),
            ("GET h/a//", "none"),
        ],
    );
}

/// A template's literals can't be taken for those of another.
#[test]
fn where_a_literal_ends_counts() {
    let table = table([("one", "path: '/ab/{x}/c'"), ("other", "path: '/a/{x}/bc'")]);
    assert_eq!(found(&table, "GET h/ab/x/c"), "one");
    assert_eq!(found(&table, "GET h/a/x/bc"), "other");
    assert_eq!(found(&table, "GET h/ab/x/bc"), "none");
}

#[test]
fn a_prefix_ends_at_a_slash() {
    check(
        &[("api", "path_prefix: /api"), ("v1", "path_prefix: /api/v1"), ("deep", "path_prefix: /a/b/c/d/e")],
        &[
            ("GET h/api", "api"),
            ("GET h/api/", "api"),
            ("GET h/api/v", "api"),
            ("GET h/api/v1", "v1"),
            ("GET h/api/v1/", "v1"),
            ("GET h/api/v1/x/y/z", "v1"),
            ("GET h/api/v12", "api"),
            ("GET h/apifoo", "none"),
            ("GET h/apifoo/v1", "none"),
            ("GET h/ap", "none"),
            ("GET h/x/api", "none"),
            ("GET h/", "none"),
            ("GET h/a/b/c/d", "none"),
            ("GET h/a/b/c/d/e", "deep"),
            ("GET h/a/b/c/d/e/f", "deep"),
        ],
    );
}

#[test]
fn more_conditions_go_first() {
    check(
        &[
            ("plain", "path: /x"),
            ("query", "path: /x, query: { a: '1' }"),
            ("queries", "path: /x, query: { a: '1', b: '2' }"),
            ("header", "path: /x, headers: { x-a: '1' }"),
            ("headers", "path: /x, headers: { x-a: '1', x-b: '2' }"),
            ("header_query", "path: /x, headers: { x-a: '1' }, query: { a: '1' }"),
            ("post", "path: /x, methods: [POST, PUT]"),
            ("post_header", "path: /x, methods: [POST], headers: { x-a: '1' }"),
        ],
        &[
            ("GET h/x", "plain"),
            ("GET h/x?a=1", "query"),
            ("GET h/x?b=2&a=1", "queries"),
            ("GET h/x?a=1 x-a: 1", "header_query"),
            ("GET h/x?b=2 x-a: 1", "header"),
            ("GET h/x?b=2&a=1 x-b: 2 x-a: 1", "headers"),
            ("PUT h/x?b=2&a=1 x-b: 2 x-a: 1", "post"),
            ("POST h/x x-a: 1", "post_header"),
            ("POST h/x x-a: 2", "post"),
        ],
    );
}

/// Neither of two that are as specific is found by its place in the file.
#[test]
fn equally_many_conditions_have_an_order() {
    check(
        &[
            ("b", "path: /x, headers: { x-b: '1' }"),
            ("a", "path: /x, headers: { x-a: '1' }"),
            ("a2", "path: /x, headers: { x-a: '2' }"),
            ("q", "path: /y, query: { q: '1' }"),
            ("p", "path: /y, query: { p: '1' }"),
        ],
        &[("GET h/x x-b: 1 x-a: 1", "a"), ("GET h/x x-b: 1 x-a: 2", "a2"), ("GET h/y?q=1&p=1", "p")],
    );
}

#[test]
fn a_path_falls_through_to_a_less_specific_one() {
    check(
        &[
            ("exact", "path: /a/b, methods: [PUT]"),
            ("template", "path: '/a/{x}', methods: [POST]"),
            ("prefix", "path_prefix: /a/b, methods: [DELETE]"),
            ("root", "path_prefix: /"),
        ],
        &[("PUT h/a/b", "exact"), ("POST h/a/b", "template"), ("DELETE h/a/b", "prefix"), ("GET h/a/b", "root")],
    );
}

#[test]
fn a_header_condition_is_about_all_lines() {
    let table = table([("a", "headers: { x-a: '1, 2' }"), ("cookie", "headers: { cookie: 'a=1; b=2' }")]);
    assert_eq!(found(&table, "GET h/ x-a: 1 x-a: 2"), "a");
    assert_eq!(found(&table, "GET h/ x-a: 1"), "none");
    assert_eq!(found(&table, "GET h/ x-a: 1 x-a: 2 x-a: 3"), "none");
    assert_eq!(found(&table, "GET h/ cookie: a=1 cookie: b=2"), "cookie");
}

#[test]
fn a_query_condition_is_about_one_decoded_parameter() {
    let table = table([("flag", "query: { flag: '' }"), ("ab", "query: { 'a b': 'c&d' }"), ("e", "query: { '': '' }")]);
    for (request, expected) in [
        ("GET h/?flag", "flag"),
        ("GET h/?x=1&flag=&y", "flag"),
        ("GET h/?flag=1", "none"),
        ("GET h/?flags", "none"),
        ("GET h/?%66lag", "flag"),
        ("GET h/?a%20b=c%26d", "ab"),
        ("GET h/?a+b=c%26d", "none"),
        ("GET h/?a%20b=x&a%20b=c%26d", "ab"),
        ("GET h/?a%20b=c&d", "none"),
        ("GET h/", "none"),
        ("GET h/?", "e"),
    ] {
        assert_eq!(found(&table, request), expected, "{request}");
    }
}

#[test]
fn without_routes_there_is_none() {
    let router = Router::new(&[]);
    let headers = HeaderMap::new();
    let asked = Asked { host: "a.b.c", path: "/a/b", method: &Method::GET, headers: &headers, query: None };
    assert_eq!(router.find(&asked), None);
}

#[test]
fn among_ten_thousand_each_is_found() {
    let matches: Vec<(String, String)> = (0..10_000)
        .map(|number| {
            let matches = match number % 5 {
                0 => format!("hosts: [h{number}.example.com], path_prefix: /api"),
                1 => format!("hosts: ['*.w{number}.example.com'], path_prefix: /api"),
                2 => format!("path: /exact/{number}"),
                3 => format!("path: '/t{number}/{{id}}/x'"),
                _ => format!("path_prefix: /p/{number}"),
            };
            (format!("r{number}"), matches)
        })
        .collect();
    let table = table(matches.iter().map(|(name, matches)| (name.as_str(), matches.as_str())));
    for number in 0..10_000 {
        let request = match number % 5 {
            0 => format!("GET h{number}.example.com/api/x"),
            1 => format!("GET a.b.w{number}.example.com/api"),
            2 => format!("GET h/exact/{number}"),
            3 => format!("GET h/t{number}/7/x"),
            _ => format!("GET h/p/{number}/x"),
        };
        assert_eq!(found(&table, &request), format!("r{number}"));
    }
}

/// However long a host or path is, no more of it is looked at than a pattern
/// could match.
#[test]
fn long_hosts_and_paths_are_found_nowhere() {
    let table = table([("w", "hosts: ['*.example.com']"), ("p", "path_prefix: /a/b"), ("t", "path: '/a/{x}/c'")]);
    let host = "a.".repeat(20_000);
    assert_eq!(found(&table, &format!("GET {host}example.com/x")), "w");
    assert_eq!(found(&table, &format!("GET {host}example.org/x")), "none");
    assert_eq!(found(&table, &format!("GET h/a/b{}", "/a".repeat(20_000))), "p");
    assert_eq!(found(&table, &format!("GET h{}", "/b".repeat(20_000))), "none");
}
