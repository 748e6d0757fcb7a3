"""What is measured: the scenarios, and the requests that all gateways get."""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass

SECRET = "a-shared-secret-of-32-bytes-len!"
# API keys of the consumers.
KEYS = [hashlib.sha256(b"consumer%d" % i).hexdigest()[:32] for i in range(100)]
# Requests in a second, and at once: a limit that is never hit.
NEVER = 1_000_000


@dataclass(frozen=True)
class Features:
    """What a scenario asks of a gateway."""

    body: str = "0k"            # 0k or 1k: what the upstream answers
    routes: int = 0             # 0: one route for all; n: prefixes /r0000/ to /rn/
    rate_limit: bool = False    # by X-Api-Key, or by consumer with key_auth
    key_auth: bool = False      # X-Api-Key must be one of KEYS
    jwt: bool = False           # Authorization: Bearer, HS256; exp and iss are checked
    plugins: int = 0            # so many in a row: key auth, token bucket, header x-plugin
    noop: bool = False          # they do nothing (what the crossing costs)
    cache: bool = False         # answered from the cache
    swap: str = ""              # what is replaced under load: config, plugin-new, plugin-compiled
    memory: bool = False        # all that the gateway brings along is in use


@dataclass(frozen=True)
class Scenario:
    title: str
    features: Features
    connections: int = 64


SCENARIOS = {
    "S0-0k": Scenario("plain proxy, 0 KB", Features()),
    "S0-1k": Scenario("plain proxy, 1 KB", Features(body="1k")),
    "S0-c1": Scenario("plain proxy, 0 KB, one connection", Features(), connections=1),
    "S1": Scenario("rate limit by a header field", Features(rate_limit=True)),
    "S2": Scenario("key auth (100 consumers) and rate limit by consumer", Features(rate_limit=True, key_auth=True)),
    "S3": Scenario("JWT HS256", Features(jwt=True)),
    "S4n": Scenario("a plugin that does nothing", Features(plugins=1, noop=True)),
    "S4": Scenario("plugin: key auth, token bucket, response header", Features(plugins=1)),
    "S4x3": Scenario("the plugin of S4 three times in a row", Features(plugins=3)),
    "S5-1": Scenario("1 prefix route", Features(routes=1)),
    "S5-100": Scenario("100 prefix routes", Features(routes=100)),
    "S5-1000": Scenario("1 000 prefix routes", Features(routes=1000)),
    "S5-10000": Scenario("10 000 prefix routes", Features(routes=10000)),
    "S6": Scenario("cache hit, 1 KB", Features(body="1k", cache=True)),
    "S7-config": Scenario("the configuration is replaced under load", Features(swap="config")),
    "S7-plugin-compiled": Scenario(
        "a plugin is replaced under load by one that was compiled before", Features(swap="plugin-compiled")),
    "S7-plugin-new": Scenario("a plugin is replaced under load by a new one", Features(swap="plugin-new")),
    "M1": Scenario("memory: key auth and rate limit; Weir: every built-in plugin",
                   Features(rate_limit=True, key_auth=True, memory=True)),
}


def select(names):
    """Scenarios by name, or by what stands before the first dash: S0 is every S0-*."""
    return [s for s in SCENARIOS if any(s == n or s.startswith(n + "-") for n in names)]


@dataclass(frozen=True)
class Part:
    """Scenarios that are measured in turns."""

    scenarios: tuple
    slice: int                  # seconds of load that a gateway gets at a time
    rounds: int


# The table of RESULTS.md, a quarter of an hour. S3 and S6 come in with Weir's features.
DEFAULT_TABLE = (
    Part(("S0-0k", "S1", "S2", "S4n", "S4", "S4x3"), slice=2, rounds=4),
    Part(("S0-1k", "S0-c1", "S5"), slice=2, rounds=3),
    Part(("S7",), slice=10, rounds=1),
    Part(("M1",), slice=5, rounds=1),
)


def paths(features):
    """The prefixes of the routes."""
    return [f"/r{i:04d}/" for i in range(features.routes)] if features.routes else ["/"]


def requests(features):
    """Path and header of each request: the same bytes in every scenario but the cache's."""
    # Half of the latter are for `respond`, the built-in plugin that answers.
    prefixes = paths(features) if not features.memory else ["/", "/respond/"]
    out = []
    for i in range(max(100, len(prefixes))):
        header = {"Accept": "*/*"}
        if not features.cache:      # credentials keep an answer out of caches
            header |= {"X-Api-Key": KEYS[i % 100], "Authorization": "Bearer " + TOKENS[i % 100]}
        out.append((prefixes[i % len(prefixes)] + "item", header))
    return out


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def make_jwt(subject, expires=4102444800, secret=SECRET):
    head = base64url(b'{"alg":"HS256","typ":"JWT"}')
    body = base64url(json.dumps({"iss": "bench", "sub": subject, "exp": expires}).encode())
    signature = hmac.new(secret.encode(), f"{head}.{body}".encode(), hashlib.sha256)
    return f"{head}.{body}.{base64url(signature.digest())}"


TOKENS = [make_jwt(f"consumer-{i}") for i in range(100)]
