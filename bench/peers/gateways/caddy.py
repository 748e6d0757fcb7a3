"""Caddy, as it is shipped."""

import http.client
import json

from ..gateway import BENCH, Gateway, Skip
from ..scenarios import paths

BINARY = str(BENCH / "venv/bin/caddy")


def files(features, params):
    if features.rate_limit or features.key_auth or features.jwt or features.plugins or features.cache:
        raise Skip("not in the stock build")
    if features.swap.startswith("plugin"):
        raise Skip("no plugins that are swapped")
    handle = [{"handler": "reverse_proxy", "upstreams": [{"dial": f"127.0.0.1:{params.upstream}"}],
               "transport": {"protocol": "http", "keep_alive": {"max_idle_conns_per_host": 256}}}]
    if features.swap:
        added = {"set": {"x-config-version": [str(params.version)]}}
        handle.insert(0, {"handler": "headers", "response": added})
    routes = [{"match": [{"path": [path + "*"]}], "handle": handle} for path in paths(features)]
    routes.append({"handle": [{"handler": "static_response", "status_code": 404}]})
    server = {"listen": [f"127.0.0.1:{params.port}"], "automatic_https": {"disable": True},
              "protocols": ["h1"], "routes": routes}
    return {"caddy.json": json.dumps({
        "admin": {"listen": f"127.0.0.1:{params.admin}", "config": {"persist": False}},
        "logging": {"logs": {"default": {"level": "ERROR"}}},
        "apps": {"http": {"servers": {"s": server}}}})}


def swap(running, files):
    """Through the admin address."""
    connection = http.client.HTTPConnection("127.0.0.1", running.params.admin, timeout=10)
    try:
        connection.request("POST", "/load", files["caddy.json"], {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f"Caddy's admin address answers {answer.status}")


CADDY = Gateway(files, lambda dir, workers: [BINARY, "run", "--config", f"{dir}/caddy.json"], [BINARY, "version"],
                environment=lambda workers: {"GOMAXPROCS": str(workers)}, swap=swap)
