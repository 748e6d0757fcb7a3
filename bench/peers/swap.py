"""Replaces a configuration or a plugin under load, and sees when the new one answers."""

import http.client
import time
from dataclasses import replace

from .process import get
from .scenarios import requests

SWAPS = 5
PAUSE = 0.002               # between two probes
LONGEST = 10.0              # seconds after which a swap counts as not seen


def swap_once(running, gateway, features, version):
    """Milliseconds from the swap to the first answer by the new version on a connection of its own, None if
    there is none in time; and how many probes have failed meanwhile."""
    path, header = requests(features)[0]
    running.params = replace(running.params, version=version)
    files, failed = gateway.files(features, running.params), 0
    start = time.perf_counter()
    gateway.swap(running, files)
    while time.perf_counter() - start < LONGEST:
        try:
            status, answer, _ = get(running.params.port, path, header, timeout=2)
        except (OSError, http.client.HTTPException):
            status, answer = 0, {}
        failed += status != 200
        if int(answer.get("x-config-version", 0)) == version:
            return (time.perf_counter() - start) * 1000, failed
        time.sleep(PAUSE)
    return None, failed


def next_version(features, serving):
    """One that has not been there, or one of two in turns."""
    return 3 - serving if features.swap == "plugin-compiled" else serving + 1


def swap_beforehand(running, gateway, features):
    """Has both versions compiled that take turns."""
    for version in (2, 1) if features.swap == "plugin-compiled" else ():
        if swap_once(running, gateway, features, version)[0] is None:
            raise RuntimeError("the first swap is not seen")


def swap_under_load(running, gateway, features, seconds):
    """Swaps spread over the time of the load."""
    times, failed = [], 0
    for _ in range(SWAPS):
        time.sleep(seconds / (SWAPS + 1))
        version = next_version(features, running.params.version)
        milliseconds, probes = swap_once(running, gateway, features, version)
        times.append(milliseconds)
        failed += probes
    return {"swap_ms": times, "probes_failed": failed}
