"""The gateways, in the order of the tables. A new one is a module here and a line below."""

from . import caddy, envoy, haproxy, nginx, traefik, weir

GATEWAYS = {
    "nginx": nginx.NGINX,
    "nginx-lua": nginx.NGINX_LUA,
    "nginx-njs": nginx.NGINX_NJS,
    "haproxy": haproxy.HAPROXY,
    "haproxy-lua": haproxy.HAPROXY_LUA,
    "envoy": envoy.ENVOY,
    "envoy-lua": envoy.ENVOY_LUA,
    "traefik": traefik.TRAEFIK,
    "caddy": caddy.CADDY,
    "weir": weir.WEIR,
    "weir-plugin": weir.WEIR_PLUGIN,
}
# What gateways are compared with, the first that runs the scenario.
REFERENCES = ["nginx", "nginx-lua"]
