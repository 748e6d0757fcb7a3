"""From rows of numbers to tables."""

import statistics

from .gateways import GATEWAYS, REFERENCES
from .scenarios import SCENARIOS


def quartiles(values):
    """Median, first and third quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    first, median, third = statistics.quantiles(values, n=4, method="inclusive")
    return median, first, third


def spread(values, form="{:.1f}"):
    """Median and quartiles as text."""
    if not values:
        return "-"
    median, first, third = (form.format(value) for value in quartiles(values))
    return median if len(values) < 2 else f"{median} ({first}…{third})"


def paired(rows, others, function, key="cpu_us"):
    """A function of a number and another gateway's in the same round, for each round."""
    by_round = {row["round"]: row[key] for row in others or []}
    return [function(row[key], by_round[row["round"]]) for row in rows if by_round.get(row["round"])]


def ratio(own, other):
    return own / other


def difference(own, other):
    return own - other


def values(rows, key):
    return [row[key] for row in rows]


def median(rows, key, form="{:,.0f}"):
    return form.format(statistics.median(values(rows, key)))


def failed(rows):
    """All failed requests of all, and their kinds."""
    kinds = {}
    for row in rows:
        for kind, count in row["failures"].items():
            kinds[kind] = kinds.get(kind, 0) + count
    total = sum(values(rows, "failed"))
    return f"{total:,}" + (f" ({', '.join(kinds)})" if kinds else "")


def base(cells, scenario, name):
    """The rows of a gateway that a scenario's cost is over: its plain proxy, or its only route."""
    features, gateway = SCENARIOS[scenario].features, GATEWAYS.get(name)
    plain = "S5-1" if features.routes else "S0-0k"
    if not gateway or scenario == plain or features.body != "0k" or SCENARIOS[scenario].connections == 1:
        return None
    return cells.get((plain, gateway.base or name))


def load_columns(cells, scenario, reference):
    """Heading and a function of (name, rows), for scenarios of steady load."""
    direct = cells.get((scenario, "direct"))
    columns = [
        ("req/s", lambda name, rows: median(rows, "rps")),
        ("p50 µs", lambda name, rows: median(rows, "p50_us")),
    ]
    if SCENARIOS[scenario].connections == 1:
        columns.append(("added p50 µs", lambda name, rows: spread(
            paired(rows, direct, difference, "p50_us"), "{:+.0f}") if name != "direct" else "-"))
    columns += [
        ("p99 µs", lambda name, rows: median(rows, "p99_us")),
        ("CPU µs/req", lambda name, rows: spread(values(rows, "cpu_us")) if name in GATEWAYS else "-"),
        (f"CPU × {reference}", lambda name, rows: spread(
            paired(rows, cells.get((scenario, reference)), ratio), "{:.2f}") if name in GATEWAYS else "-"),
        (f"CPU µs over own {'S5-1' if SCENARIOS[scenario].features.routes else 'S0-0k'}",
         lambda name, rows: spread(paired(rows, base(cells, scenario, name), difference), "{:+.1f}")),
        ("memory MB", lambda name, rows: median(rows, "anonymous_mb") if name in GATEWAYS else "-"),
        ("other cores", lambda name, rows: median(rows, "other_cores", "{:.2f}")),
        ("failed", lambda name, rows: failed(rows)),
    ]
    return columns


def swap_seen(rows):
    times = [x for row in rows for x in row["swap_ms"]]
    seen = [x for x in times if x is not None]
    text = spread(seen, "{:.0f}") if seen else "never"
    return text + (f", {len(times) - len(seen)} not seen in 10 s" if len(seen) < len(times) else "")


def swap_longest(rows):
    seen = [x for row in rows for x in row["swap_ms"] if x is not None]
    return f"{max(seen):.0f}" if seen else "-"


def swap_columns():
    return [
        ("new version seen after ms", lambda name, rows: swap_seen(rows)),
        ("longest", lambda name, rows: swap_longest(rows)),
        ("swaps", lambda name, rows: str(sum(len(row["swap_ms"]) for row in rows))),
        ("failed requests", lambda name, rows: failed(rows)),
        ("of", lambda name, rows: f"{sum(values(rows, 'requests')):,}"),
        ("failed probes", lambda name, rows: str(sum(values(rows, "probes_failed")))),
        ("p99 µs", lambda name, rows: median(rows, "p99_us")),
    ]


def memory_columns():
    return [
        ("PSS MB 30 s after the load", lambda name, rows: spread(values(rows, "settled_pss_mb"))),
        ("at its end", lambda name, rows: spread(values(rows, "pss_mb"))),
        ("req/s", lambda name, rows: median(rows, "rps")),
        ("failed", lambda name, rows: failed(rows)),
    ]


def columns_of(cells, scenario):
    features = SCENARIOS[scenario].features
    if features.swap:
        return swap_columns()
    if features.memory:
        return memory_columns()
    reference = next((name for name in REFERENCES if (scenario, name) in cells), REFERENCES[0])
    return load_columns(cells, scenario, reference)


def table(columns, named_rows):
    """A Markdown table; columns that say nothing are left out."""
    lines = [[name, *(function(name, rows) for _, function in columns)] for name, rows in named_rows]
    heads = ["gateway", *(head for head, _ in columns)]
    kept = [i for i in range(len(heads)) if any(line[i] != "-" for line in lines)]
    out = ["| " + " | ".join(heads[i] for i in kept) + " |", "|---|" + "--:|" * (len(kept) - 1)]
    return out + ["| " + " | ".join(line[i] for i in kept) + " |" for line in lines]


def section(cells, skips, scenario, workers):
    names = [name for name in ("direct", *GATEWAYS) if (scenario, name) in cells]
    first = cells[scenario, names[0]]
    told = SCENARIOS[scenario]
    connections = "1 connection" if told.connections == 1 else f"{told.connections} connections"
    rounds = f"{len(first)} round{'s' if len(first) > 1 else ''} of {first[0]['slice']} s"
    out = ["", f"## {scenario}: {told.title}", "", f"{connections}, {workers} workers, {rounds}.", ""]
    out += table(columns_of(cells, scenario), [(name, cells[scenario, name]) for name in names])
    absent = sorted(f"{name} ({why})" for (where, name), why in skips.items() if where == scenario and why)
    return out + (["", "Not run: " + "; ".join(absent) + "."] if absent else [])


LEGEND = """\
Medians over rounds, with quartiles in brackets; ratios and differences are taken within a round, where
both see the same noise. CPU is user and system time of the gateway's processes. *Other cores* are those
that anything else kept busy, the load and the upstream included: where it is above the others of its
table, somebody else was at work. *Memory* is anonymous memory right after the load: the gateways of a
table run side by side and share the pages of their programs. `direct` is the upstream without a gateway."""


def report(rows, skips, about, workers):
    cells = {}
    for row in rows:
        cells.setdefault((row["scenario"], row["gateway"]), []).append(row)
    out = ["# Results", "", *about, "", LEGEND]
    for scenario in SCENARIOS:
        if any(where == scenario for where, _ in cells):
            out += section(cells, skips, scenario, workers)
    return "\n".join(out) + "\n"
