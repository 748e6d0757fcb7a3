"""The load: wrk with one thread, the same requests for every gateway."""

import json
import os
import subprocess
from pathlib import Path

from .scenarios import requests

SCRIPT = Path(__file__).with_name("load.lua")
FAILURES = ("connect", "read", "write", "status", "timeout")


def write_requests(features, path):
    """The requests of a scenario, as a file for load.lua."""
    rows = []
    for target, header in requests(features):
        fields = ",".join(f'["{name}"]="{value}"' for name, value in header.items())
        rows.append(f'{{path="{target}",headers={{{fields}}}}}')
    path.write_text("return {\n" + ",\n".join(rows) + "\n}\n")


class Load:
    """wrk while it runs."""

    def __init__(self, port, connections, seconds, requests_file):
        self.seconds = seconds
        self.process = subprocess.Popen(
            ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "5s", "-s", str(SCRIPT),
             f"http://127.0.0.1:{port}/"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "BENCH_REQUESTS": str(requests_file)}, text=True)

    def result(self):
        """Waits for its end. Counts, and latencies in microseconds."""
        try:
            out, _ = self.process.communicate(timeout=self.seconds + 20)
        finally:
            self.stop()
        for line in out.splitlines():
            if line.startswith("RESULT "):
                return json.loads(line.removeprefix("RESULT "))
        raise RuntimeError("wrk: " + out[-300:])

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
