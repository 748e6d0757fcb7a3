"""What the numbers were measured on."""

import os
import platform
import re
import subprocess
from pathlib import Path

from .gateway import WORKSPACE
from .gateways import GATEWAYS

# When this was read: before anything was started.
LOAD = os.getloadavg()[0]


def output(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).strip()


def field(path, name):
    match = re.search(rf"^{name}\s*[:=]\s*\"?([^\"\n]+)", Path(path).read_text(), re.MULTILINE)
    return match.group(1).strip() if match else "unknown"


def version(command):
    """The version number in what a program says about itself."""
    said = output(command).replace(command[0], "")     # a path may hold another number
    match = re.search(r"\d+\.\d+(\.\d+)?[\w.+~-]*", said)
    return match.group(0) if match else "not there"


def weir_commit():
    commit = output(["git", "-C", str(WORKSPACE), "rev-parse", "--short", "HEAD"])
    if not re.fullmatch(r"[0-9a-f]+", commit):
        return ""
    changed = output(["git", "-C", str(WORKSPACE), "status", "--porcelain", "--untracked-files=no"])
    return f" (commit {commit}{', with changes' if changed else ''})"


def describe():
    """Lines of Markdown: machine and versions."""
    memory = int(field("/proc/meminfo", "MemTotal").split()[0]) / 1024 / 1024
    cores = len(os.sched_getaffinity(0))
    programs = {name.split("-")[0]: gateway.version for name, gateway in GATEWAYS.items()}
    versions = [f"{name} {version(command)}" for name, command in programs.items()]
    versions[-1] += weir_commit()
    return [f"- Machine: {cores} cores of {field('/proc/cpuinfo', 'model name')}, {memory:.0f} GiB, "
            f"{field('/etc/os-release', 'PRETTY_NAME')}, Linux {platform.release()}, load average {LOAD:.1f} before",
            f"- Versions: {', '.join(versions)}; wrk {version(['wrk', '-v'])}, "
            f"{output(['rustc', '--version']) or 'no rustc'}"]
