"""`python -m tools.upgrade`: sums up what tests/upgrade_*.py have noted. See ./dev upgrade --help."""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

from tools.harness.document import RELIABILITY, circumstances, commit, replace_part, set_figures

HOW = {"stop": "SIGTERM", "kill": "SIGKILL"}


def parse():
    parser = argparse.ArgumentParser(prog="python -m tools.upgrade")
    parser.add_argument("--before", required=True, help="what the earlier version is called")
    parser.add_argument("--notes", type=Path, required=True, help="a line of JSON for each restart")
    parser.add_argument("--json", type=Path, help="write all of it there")
    parser.add_argument("--record", action="store_true", help="write the sums into docs/reliability.md")
    return parser.parse_args()


def sums(notes):
    """For each way to restart a node, with each configuration server: how often, and the longest times."""
    rows = defaultdict(lambda: {"restarts": 0, "wait_max_s": 0.0, "healthy_max_s": 0.0})
    for note in notes:
        row = rows[note["config"], note["what"], note["to"]]
        row["restarts"] += 1
        row["wait_max_s"] = max(row["wait_max_s"], *note["waits_s"].values())
        row["healthy_max_s"] = max(row["healthy_max_s"], note["healthy_s"])
    return [{"config": config, "what": what, "to": to, **row} for (config, what, to), row in sorted(rows.items())]


def table(before, rows):
    """The record for docs/reliability.md."""
    names = {"before": before, "after": commit()}
    lines = [
        "| Configuration | Ends by | Starts as | Times | Longest wait of a write, s | Healthy after at most, s |",
        "|---|---|---|---:|---:|---:|",
    ]
    for row in rows:
        cells = [row["config"], HOW[row["what"]], names[row["to"]], str(row["restarts"])]
        lines.append("| " + " | ".join([*cells, f"{row['wait_max_s']:.2f}", f"{row['healthy_max_s']:.1f}"]) + " |")
    return "\n".join([circumstances(3), "", f"From {before} to {commit()} and back.", "", *lines])


def main():
    arguments = parse()
    notes = [json.loads(line) for line in arguments.notes.read_text().splitlines()]
    if not notes:
        print("no node was restarted: nothing is summed up", file=sys.stderr)
        return 0 if not arguments.record else 1
    rows = sums(notes)
    shown = table(arguments.before, rows)
    print(shown)
    if arguments.json:
        summary = {"before": arguments.before, "after": commit(), "sums": rows, "restarts": notes}
        arguments.json.write_text(json.dumps(summary, indent=2) + "\n")
    if arguments.record:
        replace_part(RELIABILITY, "upgrade", shown)
        planned = [row["wait_max_s"] for row in rows if (row["what"], row["to"]) == ("stop", "after")]
        set_figures(RELIABILITY, {"upgrade": f"{max(planned):.2f} s"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
