"""The goals, and what was found beside them: rows, a table for the terminal, and the part of docs/performance.md."""

from dataclasses import asdict, dataclass, field
from statistics import median

from ..plan import (
    LARGE_AFTERWARDS_MIN,
    LARGE_DENSE_MIN,
    LARGE_MAP_BYTES_MAX,
    LARGE_P99_MAX,
    LARGE_RATE_MIN,
    LARGE_RESTART_S_MAX,
    LARGE_SEQUENTIAL_MIN,
)
from ..report import yes

# A shorter run shows what it found, and is no figure of docs/performance.md.
MINUTES_MIN = 10
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Goal:
    """A figure: its cell in docs/performance.md, what it says, and what is wanted (None: shown, not judged)."""

    name: str
    part: str
    what: str
    limit: float | None
    at_most: bool = False
    digits: int = 2

    def is_reached(self, value):
        return None if self.limit is None else value <= self.limit if self.at_most else value >= self.limit

    def wanted(self):
        return "" if self.limit is None else f"{'at most ' if self.at_most else ''}{self.limit:,g}"


GOALS = [
    Goal("large_rate", "thin", "thin 200 GiB over 2 GiB: random writes", LARGE_RATE_MIN),
    Goal("large_last_minute", "thin", "thin 200 GiB over 2 GiB: the last minute", LARGE_RATE_MIN),
    Goal("large_p99", "thin", "thin 200 GiB over 2 GiB: p99", LARGE_P99_MAX, at_most=True),
    Goal("large_afterwards", "thin", "2 GiB afterwards over 2 GiB before", LARGE_AFTERWARDS_MIN),
    Goal("large_beside", "thin", "2 GiB beside the thin volume over 2 GiB alone", None),
    Goal("large_map_bytes", "thin", "bytes of map a block", LARGE_MAP_BYTES_MAX, at_most=True, digits=0),
    Goal("large_restart", "thin", "from a killed node's start to health, s", LARGE_RESTART_S_MAX, at_most=True),
    Goal("large_dense_write", "dense", "ten times what the cache holds over inside: writes", LARGE_DENSE_MIN),
    Goal("large_dense_read", "dense", "ten times what the cache holds over inside: reads", LARGE_DENSE_MIN),
    Goal("large_first_read", "sequential", "scattered over in order, the first time", None),
    Goal("large_sequential", "sequential", "scattered over in order: 4 MiB reads", LARGE_SEQUENTIAL_MIN),
]


@dataclass
class Phase:
    """Random writes for a time, and what the nodes did for each block on each of its copies."""

    name: str
    seconds: int
    rate: float
    last_minute: float
    p99_us: float
    # Rates of the other jobs that ran at the same time.
    beside: list
    map_bytes: float
    moved_blocks: float
    resident_mib: list
    series: list = field(default_factory=list)


@dataclass
class Row:
    """One figure of this build, and of the other one with --before; None for what was not measured."""

    goal: Goal
    value: float | None
    before: float | None = None

    @property
    def reached(self):
        return None if self.value is None else self.goal.is_reached(self.value)

    def as_dict(self):
        return {**asdict(self), "reached": self.reached}


def last_minute(series, interval_s, rate):
    """The mean rate of the last minute, of all that there is in a shorter run, of the whole run without a series."""
    last = series[-(60 // interval_s) :]
    return sum(last) / len(last) if last else rate


def judge(names, results):
    """Rows of the figures that were asked for: medians over the rounds."""
    return [Row(goal, *_values(goal, results)) for goal in GOALS if goal.name in names]


def _values(goal, results):
    for build in ("azekura", "before"):
        rounds = results.get(build, {}).get(goal.part, [])
        found = [one["values"][goal.name] for one in rounds if goal.name in one.get("values", {})]
        yield median(found) if found else None


def reasons(results):
    """Why something could not be measured, each once."""
    found = {}
    for build, measured in results.items():
        for one in (one for rounds in measured.values() for one in rounds if "reason" in one):
            found[f"{one['reason']}{'' if build == 'azekura' else f' ({build})'}."] = None
    return list(found)


def number(goal, value):
    return NOT_MEASURED if value is None else f"{value:,.{goal.digits}f}"


def table_cells(row, is_compared):
    reached = {None: "", True: "yes", False: "no"}[row.reached]
    other = [number(row.goal, row.before)] if is_compared else []
    return [row.goal.what, row.goal.wanted(), number(row.goal, row.value), *other, reached]


def head(is_compared):
    return ["figure", "goal", "this build", *(["before"] if is_compared else []), "reached"]


def is_compared(table):
    return any(row.before is not None for row in table)


def terminal(table):
    """The rows, aligned."""
    lines = [head(is_compared(table)), *(table_cells(row, is_compared(table)) for row in table)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def _table(heads, lines, left):
    text = [f"| {' | '.join(heads)} |", f"|{'|'.join('---' if name in left else '---:' for name in heads)}|"]
    return "\n".join([*text, *(f"| {' | '.join(line)} |" for line in lines)])


def markdown(table, results, options):
    """The part of docs/performance.md: figures, phases, and what else was found."""
    lines = [table_cells(row, is_compared(table)) for row in table]
    text = [
        f"{options.minutes:g} minutes of the thin volume, {options.secs} s a test beside, {options.rounds} round(s).",
        _table(head(is_compared(table)), lines, ("figure", "reached")),
    ]
    missing = [goal.what for goal in GOALS if goal.name not in {row.goal.name for row in table}]
    if missing:
        text.append(f"Not measured in this run: {'; '.join(missing)}.")
    text += reasons(results)
    for build, measured in results.items():
        last = {part: rounds[-1] for part, rounds in measured.items() if rounds}
        text += [part for part in (_phases(build, last.get("thin")), *_others(build, last)) if part]
    return "\n\n".join(text)


def _phases(build, found):
    if not found:
        return None
    heads = ["phase", "s", "rate", "last minute", "p99 µs", "beside", "map bytes", "moved", "RSS MiB"]
    lines = []
    for phase in (Phase(**one) for one in found["phases"]):
        lines.append(
            [
                phase.name,
                str(phase.seconds),
                f"{phase.rate:,.0f}",
                f"{phase.last_minute:,.0f}",
                f"{phase.p99_us:,.0f}",
                ", ".join(f"{rate:,.0f}" for rate in phase.beside),
                f"{phase.map_bytes:,.0f}",
                f"{phase.moved_blocks:.2f}",
                ", ".join(f"{mib:,.0f}" for mib in phase.resident_mib),
            ]
        )
    return f"`{build}`, the last round:\n\n{_table(heads, lines, ('phase',))}"


def _others(build, last):
    if restart := last.get("thin", {}).get("restart"):
        yield (
            f"`{build}`: the node that was killed had {restart['map_mib']:,.0f} MiB of map and "
            f"{restart['replay_mib']:,.0f} MiB of log to replay; its devices were open after "
            f"{restart['opened_s']:.1f} s."
        )
    if "rates" in (dense := last.get("dense", {})):
        rates = "; ".join(f"{name} {rate:,.0f} a second" for name, rate in dense["rates"].items())
        yield (
            f"`{build}`: {dense['over_gib']:.1f} GiB over {dense['inside_gib']:.1f} GiB, --memory {dense['memory']}: "
            f"{rates}."
        )
    if rates := last.get("sequential", {}).get("rates"):
        yield f"`{build}`: {'; '.join(f'{name} {rate:,.0f} MiB/s' for name, rate in rates.items())}."


def cells(table, minutes):
    """The figures for the first table of docs/performance.md. Those of the thin volume need the whole time."""
    judged = [row for row in table if row.reached is not None and (row.goal.part != "thin" or minutes >= MINUTES_MIN)]
    return {row.goal.name: f"{number(row.goal, row.value)}: {yes(row.reached)}" for row in judged}
