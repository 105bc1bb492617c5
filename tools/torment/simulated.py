"""Runs the simulator in each of its modes and writes what it ran into docs/reliability.md: `./dev sim --record`."""

import argparse
import re
import subprocess
import time
from collections import Counter

from tools.harness.document import RELIABILITY, replace_part, set_figures

FAILING = "--devices-fail"
RESTORED = "--goes-back"
LOSING = "--writes-lost"
MODES = (
    ("connections",),
    ("crash",),
    ("flips",),
    ("partitions",),
    ("stalls",),
    ("keys",),
    ("hangs",),
    ("attachments",),
    ("reservations",),
    ("snapshots",),
    ("snapshots", FAILING),
    ("snapshots", RESTORED),
    ("partitions", RESTORED),
    ("all", RESTORED),
    ("devices",),
    ("devices", LOSING),
    ("lost",),
    ("slow",),
    ("fsx",),
    ("fsx", FAILING),
    ("all",),
)
PROGRESS = re.compile(
    r"(?P<seeds>\d+) seeds, (?P<hours>[\d.]+) cluster-hours, (?P<operations>\d+) operations, (?P<faults>\d+) faults, "
    r"(?P<violations>\d+) violations"
)
FAULT = re.compile(r"(\d+) × ([^,]+)")


def parse(output):
    """Totals of one run, and its faults by kind."""
    totals = None
    for found in PROGRESS.finditer(output):
        totals = {name: float(value) if name == "hours" else int(value) for name, value in found.groupdict().items()}
    if totals is None:
        raise ValueError(f"the simulator said nothing of what it ran: {output[-500:]}")
    listed = re.search(r"faults: (.*× .*)$", output, re.MULTILINE)
    faults = Counter({kind.strip(" ."): int(count) for count, kind in FAULT.findall(listed.group(1) if listed else "")})
    return totals, faults


def run(binary, mode, minutes, threads):
    command = [binary, "--mode", *mode, "--fresh", "--seeds", "1000000000", "--keep-going"]
    command += ["--minutes", str(minutes), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    # Each names the invariant and the command that runs it again.
    violations = [line for line in said.splitlines() if "invariant" in line or "again:" in line]
    print("\n".join(violations), flush=True)
    return parse(said)


def table(rows, faults):
    lines = [
        f"Run {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, seeds that nobody knew before.",
        "",
        "| Mode | Seeds | Cluster-hours | Operations of clients | Faults | Violations |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for mode, row in rows:
        lines.append(
            f"| {mode} | {row['seeds']:,} | {row['hours']:.2f} | {row['operations']:,} | {row['faults']:,} "
            f"| {row['violations']} |"
        )
    lines += ["", "| Fault | Times |", "|---|---:|"]
    lines += [f"| {kind} | {count:,} |" for kind, count in sorted(faults.items(), key=lambda item: (-item[1], item[0]))]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="the simulator")
    parser.add_argument("--minutes", type=float, default=14, help="for all modes together")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rows, faults = [], Counter()
    for mode in MODES:
        name = " ".join(mode).replace(FAILING, "with failing devices").replace(LOSING, "that also lose writes")
        name = name.replace(RESTORED, "with restored configurations")
        print(f"mode {name}", flush=True)
        totals, kinds = run(arguments.binary, mode, arguments.minutes / len(MODES), arguments.threads)
        rows.append((name, totals))
        faults.update(kinds)
    names = ("seeds", "hours", "operations", "faults", "violations")
    rows.append(("together", {name: sum(row[name] for _, row in rows) for name in names}))
    text = table(rows, faults)
    print(text)
    replace_part(RELIABILITY, "simulated", text)
    together = rows[-1][1]
    set_figures(RELIABILITY, {"simulated": f"{together['violations']} in {together['hours']:.1f} cluster-hours"})


if __name__ == "__main__":
    main()
