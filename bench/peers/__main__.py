"""The command line: bench/run.sh."""

import argparse
import dataclasses
import json
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

from .cell import RUN, Cell, Upstream, start
from .check import LIMIT, LIMITED, check_forwarding, check_limit
from .gateway import Skip
from .gateways import GATEWAYS
from .gateways.nginx import CACHE
from .machine import describe
from .report import report
from .scenarios import DEFAULT_TABLE, SCENARIOS, Part, select


def arguments():
    parser = argparse.ArgumentParser(
        prog="bench/run.sh", description="Measures HTTP gateways side by side. Without a scenario: the whole table.")
    parser.add_argument("--scenario", help="only these, comma separated; S5 is every S5-*")
    parser.add_argument("--only", help="only these gateways, comma separated")
    parser.add_argument("--slice", type=int, help="seconds of load that a gateway gets at a time")
    parser.add_argument("--rounds", type=int, help="slices for each gateway")
    parser.add_argument("--warmup", type=int, default=1, help="seconds of load before the first slice [1]")
    parser.add_argument("--workers", type=int, default=2, help="of each gateway [2]")
    parser.add_argument("--out", default=str(RUN / "results.md"), help="where the tables go [run/results.md]")
    parser.add_argument("--verify", action="store_true", help="no load: are limits kept, fields forwarded?")
    parser.add_argument("--list", action="store_true", help="scenarios and gateways")
    args = parser.parse_args()
    args.names = args.only.split(",") if args.only else ["direct", *GATEWAYS]
    if unknown := set(args.names) - {"direct", *GATEWAYS}:
        parser.error(f"no such gateway: {', '.join(sorted(unknown))}")
    args.scenarios = select(args.scenario.split(",")) if args.scenario else None
    if args.scenarios == []:
        parser.error("no such scenario")
    return args


def plan(args):
    """Parts to run: the default table, or the given scenarios."""
    parts = DEFAULT_TABLE
    if args.scenarios:
        # Memory by itself: processes that run side by side would share their programs' pages.
        memory = [s for s in args.scenarios if SCENARIOS[s].features.memory]
        others = [s for s in args.scenarios if s not in memory]
        parts = [Part(tuple(some), slice=2, rounds=3) for some in (others, memory) if some]
    for part in parts:
        yield dataclasses.replace(part, slice=args.slice or part.slice, rounds=args.rounds or part.rounds)


class Results:
    def __init__(self):
        self.rows, self.skips = [], {}

    def attempt(self, scenario, name, function):
        """Runs it unless the cell is out, and notes why one does not run."""
        if (scenario, name) in self.skips:
            return None
        try:
            return function()
        except Skip as reason:
            self.skips[scenario, name] = str(reason)
        except Exception as error:
            self.skips[scenario, name] = f"FAILED: {error}"
            print(f"! {scenario} {name}: {error}", file=sys.stderr, flush=True)
        return None

    def add(self, row):
        self.rows.append(row)
        swapped = [x and round(x) for x in row.get("swap_ms", [])]
        print(f"{row['round']} {row['scenario']:8} {row['gateway']:12} {row['rps']:9,.0f} req/s  "
              f"p50 {row['p50_us']:6.0f} p99 {row['p99_us']:7.0f} µs  CPU {row['cpu_us']:6.1f} µs/req  "
              f"{row['anonymous_mb']:4.0f} MB  failed {row['failed']}{f'  swaps {swapped} ms' if swapped else ''}",
              flush=True)

    @property
    def failures(self):
        return [why for why in self.skips.values() if why.startswith("FAILED")]


def run_part(part, args, upstream, results):
    """Starts every cell, then gives each in turn a slice of load: differences see the same noise."""
    cells = []
    try:
        for scenario in select(part.scenarios):
            for name in args.names:
                cell = results.attempt(scenario, name, lambda: Cell(name, scenario, args, upstream))
                cells += [cell] if cell else []
        for round in range(part.rounds):
            for cell in cells:
                row = results.attempt(cell.scenario, cell.name, lambda: cell.measure(part.slice, round))
                if row:
                    results.add({**row, "slice": part.slice})
        for cell in (cell for cell in cells if cell.features.memory):
            settled = cell.settled_pss()
            for row in results.rows:
                if (row["scenario"], row["gateway"]) == (cell.scenario, cell.name):
                    row["settled_pss_mb"] = settled
    finally:
        for cell in cells:
            cell.stop()


def measure(args, upstream):
    results, begin, started = Results(), time.monotonic(), time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    for part in plan(args):
        run_part(part, args, upstream, results)
    command = shlex.join(["bench/run.sh", *sys.argv[1:]]).removesuffix(" --out RESULTS.md")
    about = [f"- Command: `{command}`, started {started}, took {(time.monotonic() - begin) / 60:.0f} minutes",
             *describe()]
    Path(args.out).write_text(report(results.rows, results.skips, about, args.workers))
    everything = {"about": about, "rows": results.rows, "skips": [[*key, why] for key, why in results.skips.items()]}
    (RUN / "results.json").write_text(json.dumps(everything, indent=1))
    print(f"\n{args.out} written after {time.monotonic() - begin:.0f} s, {len(results.failures)} cells failed")
    return bool(results.failures)


def verify(args, upstream):
    """Whether limits are kept and fields forwarded, with a low limit and one worker."""
    bad = 0
    checks = [("S0-0k", check_forwarding, "echo")] + [(scenario, check_limit, "0k") for scenario in LIMITED]
    for scenario, check, kind in checks:
        if args.scenarios and scenario not in args.scenarios:
            continue
        for name in (name for name in args.names if name in GATEWAYS):
            features, running = SCENARIOS[scenario].features, None
            try:
                running = start(name, features, "verify", 1, upstream.ports[kind], limit=LIMIT)
                # The request that it started with has come out of the bucket.
                time.sleep(1.1)
                told = "ok   " + check(features, running.params.port)
            except Skip as reason:
                if not str(reason):
                    continue
                told = f"-    {reason}"
            except Exception as error:
                bad, told = bad + 1, f"BAD  {error}"
            finally:
                if running:
                    running.stop()
            print(f"{scenario:6} {name:12} {told}", flush=True)
    return bad > 0


def main():
    args = arguments()
    if args.list:
        print("gateways:", ", ".join(GATEWAYS))
        for name, scenario in SCENARIOS.items():
            print(f"{name:20} {scenario.title}")
        return 0
    RUN.mkdir(parents=True, exist_ok=True)
    # So that everything that was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    upstream = Upstream()
    try:
        upstream.wait()
        return int(verify(args, upstream) if args.verify else measure(args, upstream))
    finally:
        upstream.running.stop()
        shutil.rmtree(CACHE, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
