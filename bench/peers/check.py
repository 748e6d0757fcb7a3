"""Whether a gateway does what a scenario claims, one request at a time."""

import ipaddress
import time

from .process import get
from .scenarios import TOKENS, make_jwt, paths, requests

# What --verify runs with: requests a second for each key, and requests sent.
LIMIT, SENT = 5, 40
LIMITED = ("S1", "S2", "S4", "S4x3")


def expect(is_so, message):
    if not is_so:
        raise RuntimeError(message)


def check(features, port):
    """Before any load: right requests pass, wrong ones are refused."""
    path, good = requests(features)[0]
    status, header, _ = get(port, path, good)
    expect(status == 200, f"a good request gets {status}")
    if features.plugins and not features.noop:
        expect("x-plugin" in header, "no x-plugin in the response")
    if features.key_auth or (features.plugins and not features.noop):
        without = {name: value for name, value in good.items() if name != "X-Api-Key"}
        for bad in ({**good, "X-Api-Key": "wrong"}, without):
            status, _, _ = get(port, path, bad)
            expect(status in (401, 403), f"a bad key gets {status}")
    if features.jwt:
        for token in (make_jwt("x", secret="other"), make_jwt("x", expires=1000), TOKENS[0][:-2], ""):
            status, _, _ = get(port, path, {**good, "Authorization": "Bearer " + token})
            expect(status in (401, 403), f"a bad token gets {status}")
    if features.routes:
        status, _, _ = get(port, paths(features)[-1] + "x", good)
        expect(status == 200, f"the last route gives {status}")
        status, _, _ = get(port, "/nowhere/x", good)
        expect(status != 200, "a path without a route is served")


def check_limit(features, port):
    """With a low limit: some requests of a key pass and the rest does not, another key is not hurt."""
    (path, good), (_, other) = requests(features)[:2]
    start = time.monotonic()
    codes = [get(port, path, good)[0] for _ in range(SENT)]
    seconds = time.monotonic() - start
    other_status, _, _ = get(port, path, other)
    passed, refused = codes.count(200), codes.count(429)
    # A full bucket at first, what has come in since, and the borders of windows.
    most = LIMIT * (2 + seconds) + 1
    told = f"200 x{passed}, 429 x{refused} in {seconds:.2f} s, another key {other_status}"
    expect(passed + refused == SENT and refused and 0 < passed <= most and other_status == 200, told)
    return told


def is_address(text):
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def check_forwarding(features, port):
    """With the upstream that shows what it gets: forwarded fields and connections that are kept."""
    path, good = requests(features)[0]
    shown = [get(port, path, good)[2].decode() for _ in range(3)]
    addresses, scheme, connection, count = shown[-1].split("|")
    told = f"x-forwarded-for {addresses!r}, -proto {scheme!r}, connection {connection!r}, request {count} on it"
    # Envoy names another of the machine's addresses in place of a loopback one.
    expect(is_address(addresses) and scheme == "http" and connection != "close" and int(count) > 1, told)
    return told
