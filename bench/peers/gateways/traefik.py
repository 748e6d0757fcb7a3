"""Traefik, with its own middlewares or an http-wasm plugin."""

import json

from ..gateway import BENCH, WASM, Gateway, Skip, plugin_text, swap_in_place
from ..scenarios import paths

BINARY = str(BENCH / "venv/bin/traefik")
PLUGIN = WASM / "wasm32-wasip1/release/http_wasm_keyauth.wasm"


def plugin_files():
    if not PLUGIN.exists():
        raise Skip("its plugin is not built: run setup.sh")
    manifest = {"displayName": "keyauth", "type": "middleware", "runtime": "wasm", "import": "local/keyauth",
                "summary": "benchmark plugin", "testData": {"text": "noop"}}
    folder = "plugins-local/src/local/keyauth"
    return {f"{folder}/.traefik.yml": json.dumps(manifest), f"{folder}/plugin.wasm": PLUGIN.read_bytes()}


def middlewares(features, params):
    out = {f"p{i}": {"plugin": {"keyauth": {"text": plugin_text(features, params)}}}
           for i in range(features.plugins)}
    if features.rate_limit:
        out["rl"] = {"rateLimit": {"average": params.limit, "burst": params.limit, "period": "1s",
                                   "sourceCriterion": {"requestHeaderName": "X-Api-Key"}}}
    if features.swap:
        out["v"] = {"headers": {"customResponseHeaders": {"x-config-version": str(params.version)}}}
    return out


def files(features, params):
    if features.key_auth or features.jwt or features.cache:
        raise Skip("not in the open-source build")
    if features.swap.startswith("plugin"):
        raise Skip("its plugins are loaded at the start")
    static = {"global": {"checkNewVersion": False, "sendAnonymousUsage": False},
              "log": {"level": "ERROR"},
              "entryPoints": {"web": {"address": f"127.0.0.1:{params.port}"}},
              "serversTransport": {"maxIdleConnsPerHost": 256},
              "providers": {"file": {"filename": f"{params.dir}/dynamic.yml", "watch": bool(features.swap)}}}
    out = {}
    if features.plugins:
        out = plugin_files()
        static["experimental"] = {"localPlugins": {"keyauth": {"moduleName": "local/keyauth"}}}
    router, chain = {"entryPoints": ["web"], "service": "up"}, middlewares(features, params)
    if chain:
        router["middlewares"] = list(chain)
    routers = {f"r{i}": {**router, "rule": f"PathPrefix(`{path}`)"} for i, path in enumerate(paths(features))}
    upstream = {"loadBalancer": {"servers": [{"url": f"http://127.0.0.1:{params.upstream}"}]}}
    http = {"routers": routers, "services": {"up": upstream}}
    if chain:
        http["middlewares"] = chain
    # JSON is YAML.
    return {**out, "traefik.yml": json.dumps(static), "dynamic.yml": json.dumps({"http": http})}


TRAEFIK = Gateway(files, lambda dir, workers: [BINARY, f"--configFile={dir}/traefik.yml"], [BINARY, "version"],
                  environment=lambda workers: {"GOMAXPROCS": str(workers)}, swap=swap_in_place("dynamic.yml"))
