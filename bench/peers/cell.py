"""One gateway in one scenario: started, checked and warm."""

import os
import time

from .check import check
from .gateway import BENCH, Params, Skip
from .gateways import GATEWAYS
from .gateways.nginx import UPSTREAM, upstream_files
from .load import FAILURES, Load, write_requests
from .process import Running, busy_seconds, cpu_seconds, free_port, memory_mb
from .scenarios import SCENARIOS, Features, requests
from .swap import swap_beforehand, swap_under_load

RUN = BENCH / "run"
# How long after the load memory is read.
SETTLED = 30


class Upstream:
    """What all gateways proxy to."""

    def __init__(self):
        self.ports = {kind: free_port() for kind in ("0k", "1k", "cache", "echo")}
        params = Params(RUN / "upstream", self.ports["0k"], 0, 0, workers=1)
        self.running = Running("upstream", UPSTREAM, upstream_files(params.dir, self.ports), params)

    def wait(self):
        self.running.wait_until_it_listens(self.ports["0k"])


def start(name, features, label, workers, upstream_port, **params):
    """A gateway that serves."""
    gateway = GATEWAYS[name]
    if features.swap and not gateway.swap:
        raise Skip()
    params = Params(RUN / f"{name}-{label}", free_port(), free_port(), upstream_port, workers, **params)
    running = Running(name, gateway, gateway.files(features, params), params)
    try:
        running.wait_until_it_listens(params.port)
        running.wait_until_it_serves(params.port, *requests(features)[0])
    except BaseException:
        running.stop()
        raise
    return running


class Cell:
    def __init__(self, name, scenario, args, upstream):
        self.name, self.scenario, self.upstream, self.running = name, scenario, upstream, None
        self.features, self.connections = SCENARIOS[scenario].features, SCENARIOS[scenario].connections
        port = upstream.ports["cache" if self.features.cache else self.features.body]
        self.requests_file = RUN / f"requests-{scenario}.lua"
        write_requests(self.features, self.requests_file)
        if name == "direct":
            if self.features != Features(body=self.features.body):
                raise Skip()
            self.port = port
        else:
            self.running = start(name, self.features, scenario, args.workers, port)
            self.port = self.running.params.port
        try:
            self.make_ready(args.warmup)
        except BaseException:
            self.stop()
            raise

    def make_ready(self, warmup):
        if self.running:
            check(self.features, self.port)
        if self.features.swap:
            swap_beforehand(self.running, GATEWAYS[self.name], self.features)
        Load(self.port, self.connections, warmup, self.requests_file).result()

    def measure(self, seconds, round):
        """One slice of load."""
        own, above = self.running and self.running.pid, self.upstream.running.pid
        cpu, upstream_cpu = cpu_seconds(own) if own else 0, cpu_seconds(above)
        busy, begin = busy_seconds(), time.perf_counter()
        load, swapped = Load(self.port, self.connections, seconds, self.requests_file), {}
        try:
            if self.features.swap:
                swapped = swap_under_load(self.running, GATEWAYS[self.name], self.features, seconds)
            counted = load.result()
        finally:
            load.stop()
        cpu = (cpu_seconds(own) if own else 0) - cpu
        upstream_cpu = cpu_seconds(above) - upstream_cpu
        passed, self.loaded_until = time.perf_counter() - begin, time.monotonic()
        n = max(counted["requests"], 1)
        return {"gateway": self.name, "scenario": self.scenario, "round": round,
                "rps": counted["requests"] / (counted["us"] / 1e6), "requests": counted["requests"],
                "p50_us": counted["p50"], "p99_us": counted["p99"], "max_us": counted["max"],
                "cpu_us": cpu * 1e6 / n, "upstream_us": upstream_cpu * 1e6 / n,
                "other_cores": (busy_seconds() - busy - cpu) / passed, "load1": os.getloadavg()[0],
                "anonymous_mb": memory_mb(own, "Pss_Anon") if own else 0, "pss_mb": memory_mb(own, "Pss") if own else 0,
                "failed": sum(counted[kind] for kind in FAILURES),
                "failures": {kind: counted[kind] for kind in FAILURES if counted[kind]}, **swapped}

    def settled_pss(self):
        """Memory some time after the load."""
        time.sleep(max(0, self.loaded_until + SETTLED - time.monotonic()))
        return memory_mb(self.running.pid, "Pss")

    def stop(self):
        if self.running:
            self.running.stop()
