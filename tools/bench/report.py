"""Results as rows, as a table for the terminal and for docs/performance.md."""

from dataclasses import dataclass, field
from statistics import median

from .plan import CPU_US_PER_WRITE_MAX, RESIDENT_MIB_PER_NODE_MAX

YARDSTICK = "qemu-nbd"
# This build, and the one that it is compared with.
BUILDS = ("azekura", "before")
# An encrypted volume, and one that is not.
CIPHERS = ("encrypted", "azekura")
WRITE_CPU = "server CPU of a replicated 4 KiB write, µs"
NODE_MEMORY = "largest node's resident memory, MiB"
# Limits and the cells of docs/performance.md that they stand in.
CELLS = {WRITE_CPU: "write_cpu", NODE_MEMORY: "node_memory"}


@dataclass
class Run:
    """One test on one target in one round."""

    target: str
    test: str
    measurement: object
    server_cpu_us: float | None
    resident_mib: list
    raw: dict = field(repr=False, default_factory=dict)


@dataclass
class Row:
    """One line of the table: medians over the rounds."""

    test: object
    target: str
    rate: float
    latency_mean_us: float
    latency_p99_us: float
    server_cpu_us: float | None
    resident_mib: float
    ratio: float | None = None

    @property
    def reached(self):
        """True or False for a judged test of Azekura, None for the others."""
        if self.target != "azekura" or self.test.goal is None or self.ratio is None:
            return None
        return self.ratio >= self.test.goal


def rows(tests, targets, runs):
    """Table rows in the order of tests, then of targets."""
    table = []
    for test in tests:
        by_target = {}
        for target in targets:
            mine = [run for run in runs if run.test == test.name and run.target == target]
            if mine:
                by_target[target] = _row(test, target, mine)
        yardstick = by_target.get(YARDSTICK)
        for row in by_target.values():
            if yardstick is not None and row.target != YARDSTICK:
                row.ratio = row.rate / yardstick.rate
            table.append(row)
    return table


def beside(tests, runs, targets=BUILDS):
    """The turns' ratios of one target, this build, to another, the one that --before names: rate (median, least,
    most) and server CPU a request (median)."""
    compared = []
    for test in tests:
        mine, before = ([run for run in runs if (run.test, run.target) == (test.name, name)] for name in targets)
        if not before or len(mine) != len(before):
            continue
        rates = [rate_of(test, new) / rate_of(test, old) for new, old in zip(mine, before)]
        compared.append(
            {
                "test": test.name,
                "rate": median(rates),
                "least": min(rates),
                "most": max(rates),
                "cpu": median(new.server_cpu_us / old.server_cpu_us for new, old in zip(mine, before)),
            }
        )
    return compared


def markdown_beside(rows, name):
    """What `beside` gives as a Markdown table; `name` is what the other build's program is called."""
    text = [
        f"Beside the build from before, `{name}`, as medians of the turns' ratios:",
        "",
        "| test | rate | least to most | CPU a request |",
        "|---|---:|---:|---:|",
    ]
    for row in rows:
        spread = f"{row['least']:.2f} to {row['most']:.2f}"
        text.append(f"| {row['test']} | {row['rate']:.3f} | {spread} | {row['cpu']:.3f} |")
    return "\n".join(text)


def rate_of(test, run):
    """What the test counts: requests or MiB a second."""
    return run.measurement.iops if test.unit == "IOPS" else run.measurement.mib_s


def _row(test, target, mine):
    cpu = [run.server_cpu_us for run in mine if run.server_cpu_us is not None]
    return Row(
        test=test,
        target=target,
        rate=median(rate_of(test, run) for run in mine),
        latency_mean_us=median(run.measurement.latency_mean_us for run in mine),
        latency_p99_us=median(run.measurement.latency_p99_us for run in mine),
        server_cpu_us=median(cpu) if cpu else None,
        resident_mib=max(sum(run.resident_mib) for run in mine),
    )


HEAD = ["test", "target", "rate", "unit", "mean µs", "p99 µs", "CPU µs/IO", "RSS MiB", "ratio", "goal", "reached"]
LEFT = {"test", "target", "unit", "reached"}


def cells(row):
    """A row as text."""
    return [
        row.test.name,
        row.target,
        f"{row.rate:,.0f}",
        row.test.unit,
        f"{row.latency_mean_us:,.0f}",
        f"{row.latency_p99_us:,.0f}",
        "-" if row.server_cpu_us is None else f"{row.server_cpu_us:,.1f}",
        "-" if row.server_cpu_us is None else f"{row.resident_mib:,.0f}",
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.target != "azekura" or row.test.goal is None else f"{row.test.goal:.1f}",
        {None: "", True: "yes", False: "no"}[row.reached],
    ]


def terminal(table):
    """The rows as an aligned table."""
    lines = [HEAD] + [cells(row) for row in table]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    text = []
    for line in lines:
        padded = [
            cell.ljust(width) if HEAD[column] in LEFT else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ]
        text.append("  ".join(padded).rstrip())
    return "\n".join(text)


def markdown(table, machine, versions, note):
    """The rows as a Markdown table with the machine above it."""
    text = [
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['file_system']}, "
        f"Linux {machine['kernel']}; {versions['fio']}, {versions['qemu-nbd']}, "
        f"Azekura at {versions['commit']}. {note}",
        "",
        "| " + " | ".join(HEAD) + " |",
        "|" + "|".join("---" if name in LEFT else "---:" for name in HEAD) + "|",
    ]
    text += ["| " + " | ".join(cells(row)) + " |" for row in table]
    return "\n".join(text)


def yes(reached):
    """Whether a goal was reached, in a word."""
    return "reached" if reached else "**not reached**"


def figures(table, judged):
    """The goals of this run, for the table that docs/performance.md begins with: cell → figure."""
    found = {row.test.name: f"{row.ratio:.2f}: {yes(row.reached)}" for row in table if row.reached is not None}
    return found | {CELLS[what]: f"{measured:,.1f}: {yes(reached)}" for what, measured, _, reached in judged}


def limits(table, node_resident_mib):
    """The goals that are not ratios: (what, measured, limit, reached)."""
    judged = []
    for row in table:
        if row.target == "azekura" and row.test.name == "randwrite_q128" and row.server_cpu_us is not None:
            reached = row.server_cpu_us <= CPU_US_PER_WRITE_MAX
            judged.append((WRITE_CPU, row.server_cpu_us, CPU_US_PER_WRITE_MAX, reached))
    if node_resident_mib:
        reached = node_resident_mib <= RESIDENT_MIB_PER_NODE_MAX
        judged.append((NODE_MEMORY, node_resident_mib, RESIDENT_MIB_PER_NODE_MAX, reached))
    return judged
