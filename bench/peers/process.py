"""Starts gateways, ends them, and reads from /proc what they use."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from .gateway import as_bytes

TICKS = os.sysconf("SC_CLK_TCK")
given_ports = set()


def free_port():
    """A port that nobody listens on, never the same twice."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port not in given_ports:
            given_ports.add(port)
            return port


class Running:
    """A gateway that runs in a folder of its own, and all its processes."""

    def __init__(self, name, gateway, files, params):
        self.name, self.dir, self.params = name, params.dir, params
        shutil.rmtree(self.dir, ignore_errors=True)
        for file, content in files.items():
            path = self.dir / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(as_bytes(content))
        with open(self.dir / "out.log", "wb") as log:
            self.process = subprocess.Popen(
                gateway.command(self.dir, params.workers), cwd=self.dir, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **gateway.environment(params.workers)})

    @property
    def pid(self):
        return self.process.pid

    def wait_until_it_listens(self, port, timeout=60):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 0.5).close()
                return
            except OSError:
                time.sleep(0.03)
        log = (self.dir / "out.log").read_text(errors="replace")[-700:]
        raise RuntimeError(f"{self.name} does not listen: {log}")

    def wait_until_it_serves(self, port, path, header, timeout=30):
        """Routes and plugins may come after the socket."""
        deadline = time.monotonic() + timeout
        while True:
            status, _, _ = get(port, path, header)
            if status == 200:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} answers {status}")
            time.sleep(0.05)

    def stop(self):
        # Descendants first: they are not found once their parent has gone.
        descendants = tree(self.pid)[1:]
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in descendants:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass


def get(port, path, header, timeout=5):
    """One request on a connection of its own: status, header, body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path, headers={**header, "Connection": "close"})
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body
    finally:
        connection.close()


def stat_fields(pid):
    """Fields of /proc/<pid>/stat from the third on, None for a process that has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def tree(pid):
    """A process and all its descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := stat_fields(entry)):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, rest = [], [pid]
    while rest:
        found.append(rest.pop())
        rest += children.get(found[-1], [])
    return found


def cpu_seconds(pid):
    """CPU time of a process tree, user and system."""
    total = 0
    for member in tree(pid):
        if fields := stat_fields(member):
            total += int(fields[11]) + int(fields[12])
            if member == pid:       # children that have ended: old workers
                total += int(fields[13]) + int(fields[14])
    return total / TICKS


def memory_mb(pid, kind):
    """Memory of a process tree. Pss: what several processes share is counted in parts; Pss_Anon: the same
    without the pages of files, programs among them."""
    kilobytes = 0
    for member in tree(pid):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith(kind + ":"))
    return kilobytes / 1024


def busy_seconds():
    """CPU time that the whole machine has spent working."""
    times = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(times) - times[3] - times[4]) / TICKS
