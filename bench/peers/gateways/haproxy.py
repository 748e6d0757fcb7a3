"""HAProxy, plain and with Lua."""

import functools
import os
import shutil
import signal

from ..gateway import Gateway, Skip, swap_by_signal
from ..scenarios import KEYS, SECRET, paths

BINARY = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin") or "haproxy"

LUA = r"""
local keys, LIMIT, NOOP = { %(keys)s }, %(limit)d, %(noop)s
local buckets = {}
core.register_action("plugin", { "http-req" }, function(txn)
  if NOOP then return end
  local h = txn.http:req_get_headers()["x-api-key"]
  local key = h and h[0] or ""
  if not keys[key] then txn:set_var("txn.deny", 401) return end
  local c = core.now()
  local now, b = c.sec + c.usec / 1e6, buckets[key]
  if not b then b = { LIMIT, now }; buckets[key] = b end
  local t = math.min(LIMIT, b[1] + (now - b[2]) * LIMIT)
  b[2] = now
  if t < 1 then b[1] = t; txn:set_var("txn.deny", 429) return end
  b[1] = t - 1
end)
core.register_action("plugin_res", { "http-res" }, function(txn)
  if not NOOP then txn.http:res_set_header("x-plugin", "1") end
end)
"""

JWT = f"""  http-request set-var(txn.jwt) http_auth_bearer
  http-request deny deny_status 401 unless {{ var(txn.jwt),jwt_header_query('$.alg') -m str HS256 }}
  http-request deny deny_status 401 unless {{ var(txn.jwt),jwt_verify("HS256","{SECRET}") -m int 1 }}
  http-request deny deny_status 401 unless {{ var(txn.jwt),jwt_payload_query('$.iss') -m str bench }}
  http-request set-var(txn.now) date()
  http-request deny deny_status 401 unless {{ var(txn.jwt),jwt_payload_query('$.exp','int'),sub(txn.now) -m int gt 0 }}
"""


def lua_rules(features):
    """One use of the Lua plugin."""
    rules = "  http-request lua.plugin\n"
    if not features.noop:
        rules += ("  http-request deny deny_status 401 if { var(txn.deny) -m int 401 }\n"
                  "  http-request deny deny_status 429 if { var(txn.deny) -m int 429 }\n")
    return rules + "  http-response lua.plugin_res\n"


def rules(features, params):
    """What the frontend does with each request, and files that it needs."""
    text, files = lua_rules(features) * features.plugins, {}
    if features.key_auth:
        files["keys.lst"] = "\n".join(KEYS) + "\n"
        text += f"  http-request deny deny_status 401 unless {{ req.hdr(x-api-key) -f {params.dir}/keys.lst }}\n"
    if features.rate_limit:
        text += ("  stick-table type string len 40 size 100k expire 60s store http_req_rate(1s)\n"
                 "  http-request track-sc0 req.hdr(x-api-key)\n"
                 f"  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {params.limit} }}\n")
    if features.jwt:
        text += JWT
    if features.routes:
        files["routes.map"] = "".join(f"{path} be\n" for path in paths(features))
        text += f"  use_backend %[path,map_beg({params.dir}/routes.map)]\n"
    else:
        text += "  default_backend be\n"
    if features.swap:
        text += f"  http-response set-header x-config-version {params.version}\n"
    return text, files


def files(features, params, lua=False):
    if lua != bool(features.plugins):
        raise Skip()
    if features.swap.startswith("plugin"):
        raise Skip("no plugins that are swapped")
    text, files = rules(features, params)
    load = cache = cached = ""
    if lua:
        files["plugin.lua"] = LUA % dict(limit=params.limit, noop="true" if features.noop else "false",
                                         keys=", ".join(f'["{key}"]=true' for key in KEYS))
        load = f"  lua-load-per-thread {params.dir}/plugin.lua\n"
    if features.cache:
        cache = "cache c\n  total-max-size 64\n  max-object-size 100000\n  max-age 3600\n"
        cached = "  http-request cache-use c\n  http-response cache-store c\n"
    files["haproxy.cfg"] = f"""global
  nbthread {params.workers}
  maxconn 8192
{load}defaults
  mode http
  timeout client 1h
  timeout server 1h
  timeout connect 5s
  option forwardfor
{cache}frontend f
  bind 127.0.0.1:{params.port}
  http-request set-header x-forwarded-proto http
{text}backend be
  http-reuse always
{cached}  server s 127.0.0.1:{params.upstream}
"""
    return files


def command(dir, workers):
    return [BINARY, "-W", "-f", f"{dir}/haproxy.cfg"]


VERSION = [BINARY, "-v"]
HAPROXY = Gateway(files, command, VERSION, swap=swap_by_signal(signal.SIGUSR2))
HAPROXY_LUA = Gateway(functools.partial(files, lua=True), command, VERSION, base="haproxy")
