"""nginx, plain and with a script module (Lua, njs); also the upstream of all gateways."""

import glob
import os
import shutil
import signal

from ..gateway import Gateway, Skip, swap_by_signal
from ..scenarios import KEYS, SECRET, Features, paths

BINARY = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin") or "nginx"
MODULES = "/usr/lib/nginx/modules"
# Memory for nginx's cache, which is a folder.
CACHE = "/dev/shm/peers-cache"

HEAD = """{modules}{user}worker_processes {workers};
pid {dir}/nginx.pid;
error_log {dir}/error.log warn;
events {{ worker_connections {connections}; }}
http {{
  access_log off;
  default_type text/plain;
  keepalive_requests 1000000000;
  keepalive_timeout 3600s;
  client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;
  uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
"""


def head(dir, workers, modules="", connections=4096):
    user = "user root;\n" if os.geteuid() == 0 else ""
    return HEAD.format(dir=dir, workers=workers, modules=modules, user=user, connections=connections)


def upstream_files(dir, ports):
    """One worker that answers at once: nothing, 1 KB, 1 KB for caches, what it has been sent."""
    kilobyte = "x" * 1024
    shown = "$http_x_forwarded_for|$http_x_forwarded_proto|$http_connection|$connection_requests"
    return {"nginx.conf": head(dir, 1, connections=16384) + f"""
  server {{ listen 127.0.0.1:{ports["0k"]}; return 200 ""; }}
  server {{ listen 127.0.0.1:{ports["1k"]}; return 200 "{kilobyte}"; }}
  server {{ listen 127.0.0.1:{ports["cache"]};
    add_header Cache-Control "public, max-age=3600"; return 200 "{kilobyte}"; }}
  server {{ listen 127.0.0.1:{ports["echo"]}; return 200 "{shown}"; }}
}}
"""}


def configuration(features, params, http="", server="", modules=""):
    if features.swap:
        server += f'  add_header x-config-version "{params.version}";\n'
    cache = ""
    if features.cache:
        os.makedirs(CACHE, exist_ok=True)
        http += f"  proxy_cache_path {CACHE}/{params.port} levels=1 keys_zone=c:1m max_size=64m;\n"
        cache = "proxy_cache c; proxy_cache_valid 200 1h; "
    proxy = (f'{cache}proxy_pass http://up; proxy_http_version 1.1; '
             'proxy_set_header Connection ""; proxy_set_header Host $host; '
             "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; "
             "proxy_set_header X-Forwarded-Proto $scheme;")
    locations = "\n".join(f"    location {path} {{ {proxy} }}" for path in paths(features))
    return {"nginx.conf": head(params.dir, params.workers, modules) + f"""
  map_hash_bucket_size 128; map_hash_max_size 4096;
  upstream up {{ server 127.0.0.1:{params.upstream}; keepalive 128;
    keepalive_requests 1000000000; keepalive_timeout 3600s; }}
{http}  server {{
    listen 127.0.0.1:{params.port};
{server}{locations}
  }}
}}
"""}


def plain_files(features, params):
    if features.jwt or features.plugins:
        raise Skip()
    if features.swap.startswith("plugin"):
        raise Skip("no plugins that are swapped")
    http = server = ""
    client = "$http_x_api_key"
    if features.key_auth:
        rows = "".join(f"    {key} consumer{i};\n" for i, key in enumerate(KEYS))
        http += '  map $http_x_api_key $consumer { default "";\n' + rows + "  }\n"
        server += '    if ($consumer = "") { return 401; }\n'
        client = "$consumer"
    if features.rate_limit:
        http += f"  limit_req_zone {client} zone=rl:10m rate={params.limit}r/s;\n"
        server += f"    limit_req zone=rl burst={params.limit} nodelay; limit_req_status 429;\n"
    return configuration(features, params, http, server)


LUA = r"""
local ffi = require "ffi"
local cjson = require "cjson.safe"
local keys, LIMIT = { %(keys)s }, %(limit)d
local M = {}

-- A token bucket for each key in this worker's memory, as the Wasm plugins have.
local buckets = {}
function M.plugin()
  local key = ngx.var.http_x_api_key or ""
  if not keys[key] then return ngx.exit(401) end
  local now, b = ngx.now(), buckets[key]
  if not b then b = { LIMIT, now }; buckets[key] = b end
  local t = math.min(LIMIT, b[1] + (now - b[2]) * LIMIT)
  b[2] = now
  if t < 1 then b[1] = t; return ngx.exit(429) end
  b[1] = t - 1
end

ffi.cdef[[
const void *EVP_sha256(void);
unsigned char *HMAC(const void *md, const void *key, int key_len, const char *d,
                    size_t n, unsigned char *out, unsigned int *out_len);
]]
local C = ffi.load("libcrypto.so.3")
local out, out_len = ffi.new("unsigned char[64]"), ffi.new("unsigned int[1]")
local SECRET = "%(secret)s"
local function unb64(s)
  s = s:gsub("-", "+"):gsub("_", "/")
  return ngx.decode_base64(s .. ("="):rep(-#s %% 4))
end

function M.jwt()
  local auth = ngx.var.http_authorization or ""
  local h, b, s = auth:match("^Bearer ([%%w_-]+)%%.([%%w_-]+)%%.([%%w_-]+)$")
  if not h then return ngx.exit(401) end
  local head = cjson.decode(unb64(h) or "")
  if not head or head.alg ~= "HS256" then return ngx.exit(401) end
  local signed = h .. "." .. b
  C.HMAC(C.EVP_sha256(), SECRET, #SECRET, signed, #signed, out, out_len)
  if unb64(s) ~= ffi.string(out, out_len[0]) then return ngx.exit(401) end
  local body = cjson.decode(unb64(b) or "")
  if not body or body.iss ~= "bench" or body.exp < ngx.time() then return ngx.exit(401) end
end
return M
"""


def lua_files(features, params):
    if not (features.jwt or features.plugins or features == Features()):
        raise Skip()
    access = "lib.jwt(); " if features.jwt else ""
    access += ("" if features.noop else "lib.plugin(); ") * features.plugins
    server = ""
    if features.jwt or features.plugins:
        server += f"    access_by_lua_block {{ {access} }}\n"
    if features.plugins:
        added = "" if features.noop else 'ngx.header["x-plugin"] = "1" ' * features.plugins
        server += f"    header_filter_by_lua_block {{ {added} }}\n"
    libraries = next(iter(glob.glob("/usr/lib/*/lua/5.1")), "/usr/lib/lua/5.1")
    http = (f'  lua_package_path "{params.dir}/?.lua;/usr/share/lua/5.1/?.lua;;";\n'
            f'  lua_package_cpath "{libraries}/?.so;;";\n'
            '  init_by_lua_block { lib = require "peerslib" }\n')
    modules = (f"load_module {MODULES}/ndk_http_module.so;\n"
               f"load_module {MODULES}/ngx_http_lua_module.so;\n")
    keys = ", ".join(f'["{key}"]="consumer{i}"' for i, key in enumerate(KEYS))
    return {**configuration(features, params, http, server, modules),
            "peerslib.lua": LUA % dict(limit=params.limit, secret=SECRET, keys=keys)}


NJS = r"""
import crypto from 'crypto';
function check(r) {
  var a = r.headersIn['Authorization'];
  if (!a || !a.startsWith('Bearer ')) return '';
  var t = a.slice(7).split('.');
  if (t.length != 3) return '';
  var mac = crypto.createHmac('sha256', '%(secret)s').update(t[0] + '.' + t[1]).digest('base64url');
  if (mac != t[2]) return '';
  try {
    if (JSON.parse(Buffer.from(t[0], 'base64url')).alg != 'HS256') return '';
    var c = JSON.parse(Buffer.from(t[1], 'base64url'));
    return c.iss == 'bench' && c.exp > Date.now() / 1000 ? c.sub : '';
  } catch (e) { return ''; }
}
export default { check };
"""


def njs_files(features, params):
    if not features.jwt:
        raise Skip()
    http = f"  js_path {params.dir}; js_import j from jwt.js; js_set $sub j.check;\n"
    modules = f"load_module {MODULES}/ngx_http_js_module.so;\n"
    return {**configuration(features, params, http, '    if ($sub = "") { return 401; }\n', modules),
            "jwt.js": NJS % dict(secret=SECRET)}


def command(dir, workers):
    return [BINARY, "-p", str(dir), "-c", f"{dir}/nginx.conf", "-e", f"{dir}/error.log", "-g", "daemon off;"]


VERSION = [BINARY, "-v"]
UPSTREAM = Gateway(upstream_files, command, VERSION)
NGINX = Gateway(plain_files, command, VERSION, swap=swap_by_signal(signal.SIGHUP))
NGINX_LUA = Gateway(lua_files, command, VERSION)
NGINX_NJS = Gateway(njs_files, command, VERSION, base="nginx")
