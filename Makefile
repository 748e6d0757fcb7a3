# Thin lines over cargo. `make run` and `make test` do all set-up on a fresh
# machine.

SECONDS_OF_LOAD ?= 60

.PHONY: setup run test installed counts soak bench fmt

# The toolchain file pins Rust and names the targets; where rustup may not
# install by itself they are added here.
setup:
	@if command -v rustup >/dev/null; then rustup target add wasm32-unknown-unknown wasm32-wasip2; fi

# The gateway with its built-ins and an embedded demo upstream.
run: setup
	cargo run --release -- run --config examples/quickstart/weir.yaml

# Everything but what is counted or soaked.
test: setup
	cargo test --workspace

# `cargo install` gives a binary that does what the READMEs say.
installed: setup
	cargo install --path host --locked --force --root target/installed
	WEIR_TEST_BINARY=$(CURDIR)/target/installed/bin/weir cargo test --workspace --test it -- the_quickstart

# Instructions, allocations and system calls per request against
# host/tests/budget.toml. Needs valgrind and strace.
counts: setup
	cargo test --release -p weir --test counts -- --include-ignored --nocapture

# 200 connections against the weather example.
soak: setup
	WEIR_SOAK_SECONDS=$(SECONDS_OF_LOAD) cargo test --workspace --test it -- --nocapture soak::

# Side by side with other gateways; see bench/README.md.
bench: setup
	cargo build --release
	bench/setup.sh
	bench/run.sh

fmt:
	cargo fmt --all
