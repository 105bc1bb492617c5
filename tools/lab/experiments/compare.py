"""Comparing targets: medians with their spread as text, ratios to the best peer, and where Azekura is behind."""

from tools.lab import results, targets

from .base import Table

OURS = "azekura"
YARDSTICK = "qemu-nbd"


def number(value):
    """A measured value with as many digits as it bears."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread_text(spread):
    """Median, and least and most when there are several."""
    if spread is None:
        return "–"
    if len(spread) == 1:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.least)}…{number(spread.most)})"


def title_of(label):
    """How a label (a variant, perhaps with options) is shown."""
    variant, _, rest = label.partition(" ")
    names = targets.known()
    if variant not in names:
        return label
    kind, _ = names[variant]
    shown = kind.title + variant.removeprefix(kind.name).replace("-", ", ", 1).replace("-", " ")
    shown = (
        shown.replace("noflush", "without flushes")
        .replace("1copy", "1 copy")
        .replace("2copies", "2 copies")
        .replace("3copies", "3 copies")
    )
    return f"{shown} ({rest.replace('=', ' ')})" if rest else shown


def copies_of(label):
    """How many copies a target keeps of each block; 1 for one that is not known (any more)."""
    kind, options = targets.known().get(label.split(" ")[0], (None, {}))
    return options.get("copies", 1) if kind else 1


def best_peer(medians, test, least_copies):
    """(label, value) of the fastest target that is not Azekura and keeps at least so many copies; None without one."""
    peers = [
        (value, label)
        for (label, measured_test), value in medians.items()
        if measured_test == test and not label.startswith(OURS) and copies_of(label) >= least_copies
    ]
    return max(peers)[::-1] if peers else None


def ratio_cells(medians, test):
    """Three cells for a test: Azekura over the best peer with copies, that peer's name, Azekura over the yardstick."""
    ours = medians.get((OURS, test))
    peer = best_peer(medians, test, 2)
    yardstick = medians.get((YARDSTICK, test))
    first = f"{ours / peer[1]:.2f}" if ours and peer and peer[1] else "–"
    return [first, title_of(peer[0]) if peer else "–", f"{ours / yardstick:.2f}" if ours and yardstick else "–"]


RATIO_HEAD = ["Azekura ÷ best peer with copies", "that peer", "Azekura ÷ qemu-nbd (no copies)"]


def medians_of(spreads):
    return {key: spread.median for key, spread in spreads.items()}


def wide_table(title, tests, labels, spreads, units, note=""):
    """A row a test, a column a target, then the ratios."""
    medians = medians_of(spreads)
    rows = []
    for test in tests:
        cells = [spread_text(spreads.get((label, test))) for label in labels]
        rows.append([f"{test} ({units[test]})", *cells, *ratio_cells(medians, test)])
    return Table(title, ["test", *map(title_of, labels), *RATIO_HEAD], rows, note)


def losses(spreads, tests, what="", fewer_is_better=False):
    """A sentence for each test in which Azekura's median is behind a peer with copies, or behind the yardstick."""
    medians = medians_of(spreads)
    if fewer_is_better:
        medians = {key: 1 / value for key, value in medians.items() if value}
    found = []
    for test in tests:
        ours = medians.get((OURS, test))
        if ours is None:
            continue
        behind = []
        peer = best_peer(medians, test, 2)
        if peer and ours < peer[1]:
            behind.append(f"{title_of(peer[0])} ({ours / peer[1]:.2f})")
        yardstick = medians.get((YARDSTICK, test))
        if yardstick and ours < yardstick:
            behind.append(f"qemu-nbd without copies ({ours / yardstick:.2f})")
        if behind:
            found.append(f"{what}{test}: behind {' and '.join(behind)}")
    return found


def order(lines, wanted):
    """The labels that were measured: those of `wanted` first and in its order, then the others as they came."""
    seen = dict.fromkeys(line["label"] for line in lines if "data" in line)
    return [label for label in wanted if label in seen] + [label for label in seen if label not in wanted]


def not_run(lines):
    """A sentence for each target that was not available or failed, with the reason; equal reasons once."""
    reasons = {}
    for line in lines:
        reason = line.get("unavailable") or (line.get("failed") and f"failed: {line['failed'].splitlines()[0]}")
        if reason:
            reasons.setdefault((line["label"], reason), []).append(f"{line['part']} {line['test']}")
    sentences = []
    for (label, reason), tests in reasons.items():
        tests = list(dict.fromkeys(tests))
        named = ", ".join(tests[:4]) + (f" and {len(tests) - 4} more" if len(tests) > 4 else "")
        sentences.append(f"{title_of(label)}, {named}: {reason}")
    return sentences


def rate(data, unit):
    return data["iops"] if unit == "IOPS" else data["mib_s"]


def part(lines, name):
    return [line for line in lines if line["part"] == name]


def rates(lines, units):
    """Spreads of each test's rate in its own unit."""
    found = {}
    for test, unit in units.items():
        chosen = [line for line in lines if line["test"] == test]
        found.update(results.spreads(chosen, lambda data: rate(data, unit)))
    return found


def bars(spreads, labels, test):
    """A Plot's bars: a target each."""
    return {
        title_of(label): (spread.median, spread.least, spread.most)
        for label in labels
        if (spread := spreads.get((label, test)))
    }
