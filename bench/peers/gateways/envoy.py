"""Envoy, with its own filters, a Proxy-Wasm plugin, or Lua."""

import functools
import json

from ..gateway import BENCH, WASM, Gateway, Skip, plugin_text, swap_by_rename
from ..scenarios import KEYS, NEVER, SECRET, base64url, paths

BINARY = next(iter(sorted(BENCH.glob("venv/lib/python*/site-packages/envoy/_bin/envoy"))), "envoy")
PLUGIN = WASM / "wasm32-wasip1/release/proxy_wasm_keyauth.wasm"
TYPES = "type.googleapis.com/envoy.extensions."

LUA = r"""
local keys, LIMIT, buckets = { %(keys)s }, %(limit)d, {}
function envoy_on_request(h)
  local key = h:headers():get("x-api-key") or ""
  if not keys[key] then h:respond({[":status"] = "401"}, "") return end
  local now, b = h:timestamp() / 1000, buckets[key]
  if not b then b = { LIMIT, now }; buckets[key] = b end
  local t = math.min(LIMIT, b[1] + (now - b[2]) * LIMIT)
  b[2] = now
  if t < 1 then b[1] = t; h:respond({[":status"] = "429"}, "") return end
  b[1] = t - 1
end
function envoy_on_response(h) h:headers():add("x-plugin", "1") end
"""
LUA_NOOP = "function envoy_on_request(h) end function envoy_on_response(h) end"


def typed(name, type, **config):
    return {"name": name, "typed_config": {"@type": TYPES + type, **config}}


def jwt():
    keys = {"keys": [{"kty": "oct", "alg": "HS256", "k": base64url(SECRET.encode())}]}
    provider = {"issuer": "bench", "forward": True, "local_jwks": {"inline_string": json.dumps(keys)}}
    return typed("jwt", "filters.http.jwt_authn.v3.JwtAuthentication", providers={"p": provider},
                 rules=[{"match": {"prefix": "/"}, "requires": {"provider_name": "p"}}])


def key_auth():
    return typed("key", "filters.http.api_key_auth.v3.ApiKeyAuth",
                 credentials=[{"key": key, "client": f"consumer{i}"} for i, key in enumerate(KEYS)],
                 key_sources=[{"header": "x-api-key"}])


def rate_limit(limit):
    def bucket(tokens):
        return {"max_tokens": tokens, "tokens_per_fill": tokens, "fill_interval": "1s"}
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    by_key = {"request_headers": {"header_name": "x-api-key", "descriptor_key": "client"}}
    return typed("rl", "filters.http.local_ratelimit.v3.LocalRateLimit",
                 stat_prefix="rl", filter_enabled=always, filter_enforced=always,
                 token_bucket=bucket(NEVER), max_dynamic_descriptors=1024,
                 descriptors=[{"entries": [{"key": "client"}], "token_bucket": bucket(limit)}],
                 rate_limits=[{"actions": [by_key]}])


def lua(index, features, params):
    code = LUA_NOOP if features.noop else LUA % dict(
        limit=params.limit, keys=", ".join(f'["{key}"]=true' for key in KEYS))
    return typed(f"lua{index}", "filters.http.lua.v3.Lua", default_source_code={"inline_string": code})


def wasm(index, features, params):
    if not PLUGIN.exists():
        raise Skip("its plugin is not built: run setup.sh")
    machine = {"vm_id": f"vm{index}", "runtime": "envoy.wasm.runtime.v8",
               "code": {"local": {"filename": str(PLUGIN)}}}
    text = {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": plugin_text(features, params)}
    return typed(f"wasm{index}", "filters.http.wasm.v3.Wasm",
                 config={"name": f"p{index}", "root_id": f"p{index}", "vm_config": machine, "configuration": text})


def filters(features, params, plugin):
    """The HTTP filters, in order."""
    out = []
    if features.jwt:
        out.append(jwt())
    if features.key_auth:
        out.append(key_auth())
    if features.rate_limit:
        out.append(rate_limit(params.limit))
    out += [plugin(i, features, params) for i in range(features.plugins)]
    if features.cache:
        memory = {"@type": TYPES + "http.cache.simple_http_cache.v3.SimpleHttpCacheConfig"}
        out.append(typed("cache", "filters.http.cache.v3.CacheConfig", typed_config=memory))
    return [*out, typed("router", "filters.http.router.v3.Router")]


def socket(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def upstream(port):
    limits = {"max_connections": 4096, "max_requests": 4096, "max_pending_requests": 4096}
    return {"name": "up", "type": "STATIC", "connect_timeout": "5s",
            "circuit_breakers": {"thresholds": [limits]},
            "load_assignment": {"cluster_name": "up", "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": socket(port)}}]}]}}


def files(features, params, plugin=wasm):
    if plugin is lua and not features.plugins:
        raise Skip()
    if features.swap.startswith("plugin"):
        raise Skip("its plugins are part of the listener")
    table = {"name": "r", "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
        {"match": {"prefix": path}, "route": {"cluster": "up"}} for path in paths(features)]}]}
    manager = {"stat_prefix": "h", "use_remote_address": True, "generate_request_id": False,
               "http_filters": filters(features, params, plugin)}
    out = {}
    if features.swap:
        table["response_headers_to_add"] = [{"header": {"key": "x-config-version", "value": str(params.version)}}]
        out["rds.json"] = json.dumps({"version_info": str(params.version), "resources": [
            {"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", **table}]})
        manager["rds"] = {"route_config_name": "r", "config_source": {
            "resource_api_version": "V3", "path_config_source": {"path": f"{params.dir}/rds.json"}}}
    else:
        manager["route_config"] = table
    manager = typed("hcm", "filters.network.http_connection_manager.v3.HttpConnectionManager", **manager)
    listener = {"name": "l", "address": socket(params.port), "filter_chains": [{"filters": [manager]}]}
    out["envoy.json"] = json.dumps({
        "node": {"id": "bench", "cluster": "bench"},
        "static_resources": {"listeners": [listener], "clusters": [upstream(params.upstream)]}}, indent=1)
    return out


def command(dir, workers):
    return [str(BINARY), "-c", f"{dir}/envoy.json", "--concurrency", str(workers), "-l", "error",
            "--disable-hot-restart"]


VERSION = [str(BINARY), "--version"]
ENVOY = Gateway(files, command, VERSION, swap=swap_by_rename)
ENVOY_LUA = Gateway(functools.partial(files, plugin=lua), command, VERSION, base="envoy")
