"""What describes a gateway to the benchmark."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from .scenarios import KEYS, NEVER

BENCH = Path(__file__).resolve().parents[1]
WORKSPACE = BENCH.parent
# Where setup.sh builds the Wasm plugins, a folder below for each target.
WASM = WORKSPACE / "target/bench"


class Skip(Exception):
    """The gateway does not have this feature, and why. Without a reason: another entry of it stands for it."""


@dataclass
class Params:
    """What a gateway's configuration is made from, beside the features."""

    dir: Path
    port: int
    admin: int
    upstream: int
    workers: int
    limit: int = NEVER          # requests a second, for each key
    version: int = 1            # served as x-config-version where something is replaced


@dataclass
class Gateway:
    files: Callable                         # files(features, params): content by file name
    command: Callable                       # command(dir, workers): what to run
    version: list                           # the command that tells the version
    environment: Callable = lambda workers: {}
    base: str = ""                          # whose plain proxy is the base, if not its own
    swap: Callable = None                   # swap(running, files): goes over to new files


def plugin_text(features, params):
    """The configuration of the Wasm plugins of Envoy and Traefik."""
    return "\n".join(["noop" if features.noop else "full", str(params.limit), str(params.limit), *KEYS])


def as_bytes(content):
    return content if isinstance(content, bytes) else content.encode()


def replace(path, content):
    """Replaces a file by renaming a new one."""
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(as_bytes(content))
    os.replace(beside, path)


def swap_by_rename(running, files):
    """For gateways that watch: replaces the files that differ."""
    for name, content in files.items():
        if (running.dir / name).read_bytes() != as_bytes(content):
            replace(running.dir / name, content)


def swap_in_place(name):
    """For gateways that watch the file itself, not its folder."""
    def swap(running, files):
        (running.dir / name).write_bytes(as_bytes(files[name]))
    return swap


def swap_by_signal(number: signal.Signals):
    def swap(running, files):
        swap_by_rename(running, files)
        os.kill(running.process.pid, number)
    return swap
