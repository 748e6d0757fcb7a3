"""Weir: chains of its built-in plugins, or one plugin of the benchmark's own."""

import functools
import json
import os
import re

from ..gateway import WASM, WORKSPACE, Gateway, Skip, swap_by_rename
from ..scenarios import KEYS, paths

BINARY = os.environ.get("WEIR") or str(WORKSPACE / "target/release/weir")
PLUGIN = WASM / "wasm32-wasip2/release/weir_keyauth.wasm"
# Stands once in the plugin's file; the digits are overwritten to make another version of it.
MARK = re.compile(rb"weir-keyauth-version-(\d{6})")


def plugin_module(version):
    """The benchmark's plugin, as a file that answers with this version."""
    if not PLUGIN.exists():
        raise Skip("its plugin is not built: run setup.sh")
    module, count = MARK.subn(b"weir-keyauth-version-%06d" % version, PLUGIN.read_bytes())
    if count != 1:
        raise RuntimeError(f"the plugin holds {count} version marks")
    return module


def key_auth():
    # Others forward the key too.
    return {"key-auth": {"header": "x-api-key", "forward": True}}


def rate_limit(limit, seconds=1, by="consumer", algorithm="fixed_window"):
    return {"rate-limit": {"limit": limit * seconds, "window": f"{seconds}s", "by": by, "algorithm": algorithm}}


def set_response(name, value):
    return {"response-transform": {"headers": {"set": {name: value}}}}


def builtin_chain(count, limit):
    """What the peers' plugins do, so many times. Uses with one window would share one count."""
    chain = []
    for i in range(count):
        chain += [key_auth(), rate_limit(limit, i + 1, algorithm="token_bucket"), set_response("x-plugin", "1")]
    return chain


def every_builtin(limit):
    """All built-in plugins but `respond`, which answers and so goes into a chain of its own."""
    request = {"headers": {"set": {"x-env": "bench"}}, "query": {"set": {"v": "1"}}, "path": {"prefix": "/v1"}}
    return [key_auth(), rate_limit(limit), {"request-transform": request}, set_response("x-served-by", "weir")]


def chain(features, params, own_plugin):
    if features.noop:
        return [{"weir-keyauth": {"mode": "noop"}}] * features.plugins
    if features.plugins and own_plugin:
        return [{"weir-keyauth": {"mode": "full", "use": str(i), "limit": params.limit, "keys": KEYS}}
                for i in range(features.plugins)]
    if features.plugins:
        return builtin_chain(features.plugins, params.limit)
    if features.memory:
        return every_builtin(params.limit)
    if features.swap == "config":
        return [set_response("x-config-version", str(params.version))]
    if features.swap:
        return [{"weir-keyauth": {"mode": "version"}}]
    out = [key_auth()] if features.key_auth else []
    if features.rate_limit:
        by = "consumer" if features.key_auth else {"header": "x-api-key"}
        out.append(rate_limit(params.limit, by=by))
    return out


def routes(features, params, plugins):
    def route(name, prefix, plugins):
        return {"name": name, "match": {"path_prefix": prefix}, "plugins": plugins,
                "upstream": f"http://127.0.0.1:{params.upstream}"}
    out = [route(f"r{i}", path.rstrip("/") or "/", plugins) for i, path in enumerate(paths(features))]
    if features.memory:
        out.append(route("respond", "/respond", [*plugins, {"respond": {"body": "here\n"}}]))
    return out


def files(features, params, own_plugin=False):
    if features.jwt or features.cache:
        raise Skip("not there yet")
    if own_plugin and (not features.plugins or features.noop):
        raise Skip()
    plugins = chain(features, params, own_plugin)
    config = {"workers": params.workers, "access_log": "off",
              "listen": [{"address": f"127.0.0.1:{params.port}", "timeouts": {"keep_alive": "1h"}}]}
    out = {}
    if any("weir-keyauth" in plugin for plugin in plugins):
        config["modules"] = {"weir-keyauth": {"path": "plugin.wasm"}}
        out["plugin.wasm"] = plugin_module(params.version if features.swap else 1)
    if any("key-auth" in plugin for plugin in plugins):
        config["consumers"] = [{"name": f"consumer{i}", "keys": [key]} for i, key in enumerate(KEYS)]
    config["routes"] = routes(features, params, plugins)
    # JSON is YAML.
    return {**out, "weir.yaml": json.dumps(config, indent=1)}


def command(dir, workers):
    # A cache of its own, so that a new plugin is one that was never compiled.
    return [BINARY, "run", "--config", f"{dir}/weir.yaml", "--cache-dir", f"{dir}/cache"]


VERSION = [BINARY, "--version"]
WEIR = Gateway(files, command, VERSION, swap=swap_by_rename)
WEIR_PLUGIN = Gateway(functools.partial(files, own_plugin=True), command, VERSION, base="weir")
