"""Command line of the benchmark; `./dev bench` calls it after it has built the binary."""

import argparse
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

from tools.harness.document import PERFORMANCE, replace_part, set_figures
from tools.harness.folders import new_folder

from . import devices, doors, fio, home, idle, large, machine, report, secure, shards, snapshots, stuck, sustained
from .measure import run_test
from .plan import FILL, READ_ONCE, TESTS
from .sizes import parse_size
from .targets import Azekura, Before, Encrypted, QemuNbd, Raw

# Beside the tests, which are run where nothing is named.
FORMS = {
    "sustained": sustained,
    "idle": idle,
    "snapshots": snapshots,
    "stuck": stuck,
    "large": large,
    "shards": shards,
    "secure": secure,
    "doors": doors,
    "home": home,
    "devices": devices,
}
# Of each device, where it is not 8 GiB.
DEVICE_SIZES = {"idle": "12GiB", "snapshots": "15GiB", "shards": "1GiB", "secure": "4GiB", "doors": "6GiB"}


def progress(text):
    print(text, file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        choices=["tests", *FORMS],
        default="tests",
    )
    parser.add_argument("--secs", type=int, default=8, help="seconds a test (default 8)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds over all tests; the table shows medians")
    parser.add_argument(
        "--clusters", type=int, default=1, metavar="N", help="so often with everything made anew, all rounds each time"
    )
    parser.add_argument("--size", default="2G", help="bytes under test on each target (default 2G)")
    parser.add_argument("--volume-size", default="10GiB", help="size of the Azekura volume (default 10GiB)")
    sizes = "; ".join(f"{what}: {size}" for what, size in DEVICE_SIZES.items())
    parser.add_argument("--device-size", help=f"of each device (default 8GiB; large: 12GiB, dense data 17GiB; {sizes})")
    parser.add_argument("--memory", metavar="SIZE", help="large: start the nodes with this --memory")
    parser.add_argument("--targets", default="azekura,qemu-nbd", help="of azekura, encrypted, qemu-nbd, raw")
    parser.add_argument(
        "--before", metavar="BINARY", help="also run this azekura binary, of another build, and compare"
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="only the tests whose names match")
    parser.add_argument(
        "--transport",
        choices=["plain", "both", "tls"],
        help="how the nodes talk with each other (default: theirs, which is plain on one machine); not with --before",
    )
    parser.add_argument("--attached", action="store_true", help="doors: the volume is at home where it is attached")
    parser.add_argument("--etcd", action="store_true", help="with etcd as configuration server")
    parser.add_argument(
        "--minutes", type=float, default=10, help="of the sustained test, and of the thin volume (default 10)"
    )
    parser.add_argument("--snapshots", type=int, default=1000, help="in the snapshots test (default 1000)")
    parser.add_argument("--json", metavar="FILE", help="write machine, versions, commands and fio's raw output")
    parser.add_argument("--record", action="store_true", help="write the figures into docs/performance.md")
    options = parser.parse_args()
    if options.what != "large":
        # There each part has its own.
        options.device_size = options.device_size or DEVICE_SIZES.get(options.what, "8GiB")
    return options


def make_targets(options, folder):
    size = parse_size(options.size)
    config = "etcd" if options.etcd else "embedded"
    known = {
        "azekura": lambda: Azekura.asked_for(folder, options, options.volume_size),
        "encrypted": lambda: Encrypted.asked_for(folder, options, options.volume_size),
        "qemu-nbd": lambda: QemuNbd(folder, size),
        "raw": lambda: Raw(folder, size),
    }
    names = options.targets.split(",")
    if options.before:
        if not os.access(options.before, os.X_OK):
            sys.exit(f"bench: --before {options.before}: there is no program of this name")
        arguments = (folder, options.volume_size, options.device_size, config, Path(options.before).resolve())
        known["before"] = lambda: Before(*arguments)
        names.append("before")
    for name in names:
        if name not in known:
            sys.exit(f"bench: there is no target '{name}': {', '.join(known)}")
    return [known[name]() for name in names]


def run_rounds(options, folder, tests, cluster=0):
    """All rounds on targets that are made for them. Gives the runs, and what the targets say of themselves."""
    targets = make_targets(options, folder)
    runs = []
    try:
        for target in targets:
            progress(f"{target.name}: starting and filling {options.size}")
            target.start()
            fio.run(fio.command(target.engine(), options.size, FILL), folder=folder)
        for target in targets:
            fio.run(fio.command(target.engine(), options.size, READ_ONCE), folder=folder)
        for round_number in range(options.rounds):
            for number, test in enumerate(tests):
                # Turn by turn, and each time the other one first: a slow minute of the machine hits all alike. What
                # comes first after the filling does so on every second cluster.
                forward = (cluster + round_number + number) % 2 == 0
                for target in targets if forward else reversed(targets):
                    run = run_test(target, test, options, folder)
                    runs.append(run)
                    rate = run.measurement.iops if test.unit == "IOPS" else run.measurement.mib_s
                    progress(f"{test.name:18} {target.name:10} {rate:12,.0f} {test.unit}")
        return runs, {target.name: target.details() for target in targets}
    finally:
        for target in targets:
            target.stop()


def run_tests(options, folder, facts):
    tests = [test for test in TESTS if re.search(options.only, test.name)]
    runs = []
    # What one cluster has by luck (places in memory and on the disk) goes with all of its rounds.
    for number in range(options.clusters):
        own = Path(folder) / f"cluster-{number}"
        own.mkdir()
        more, details = run_rounds(options, own, tests, number)
        runs += more
        shutil.rmtree(own, ignore_errors=True)
    table = report.rows(tests, list(details), runs)
    print(report.terminal(table))
    for row in report.beside(tests, runs, report.CIPHERS):
        spread = f"{row['least']:.2f} to {row['most']:.2f}"
        print(f"{row['test']}: encrypted, {row['rate']:.3f} times the rate ({spread}), {row['cpu']:.3f} times the CPU")
    beside = report.beside(tests, runs)
    for row in beside:
        spread = f"{row['least']:.2f} to {row['most']:.2f}"
        print(f"{row['test']}: {row['rate']:.2f} times the rate of before ({spread}), {row['cpu']:.2f} times its CPU")
    node_mib = max((max(run.resident_mib) for run in runs if run.target == "azekura"), default=0)
    judged = report.limits(table, node_mib)
    for what, measured, limit, reached in judged:
        print(f"{what}: {measured:,.1f}, at most {limit:g} wanted: {'yes' if reached else 'no'}")
    turns = f"{options.rounds} round(s) on {options.clusters} cluster(s)"
    note = f"{options.secs} s a test, {turns}, {options.size} under test."
    described = report.markdown(table, facts["machine"], facts["versions"], note)
    if beside:
        described += "\n\n" + report.markdown_beside(beside, Path(options.before).name)
    return {
        "markdown": described,
        "figures": report.figures(table, judged),
        "targets": details,
        "results": [dict(zip(report.HEAD, report.cells(row))) for row in table],
        "beside_before": beside,
        "limits": [dict(zip(("what", "measured", "limit", "reached"), line)) for line in judged],
        "runs": [
            {
                "target": run.target,
                "test": run.test,
                "server_cpu_us_per_io": run.server_cpu_us,
                "resident_mib": run.resident_mib,
                "fio_command": run.raw["command"],
                **run.measurement.as_dict(),
                "fio": run.raw["report"],
            }
            for run in runs
        ],
    }


def main():
    options = arguments()
    # A stop by signal takes the servers and their devices away like any other end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Asked first: the load of a machine is what it was before the benchmark.
    facts = {"machine": machine.describe(), "versions": machine.versions()}
    folder = new_folder("azk-bench-")
    began = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    try:
        if options.what == "tests":
            result = run_tests(options, folder, facts)
        else:
            result = FORMS[options.what].run(options, folder, progress)
    except (fio.FioError, AssertionError, TimeoutError, RuntimeError) as error:
        sys.exit(f"bench: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.record:
        replace_part(PERFORMANCE, result.get("part", options.what), result["markdown"])
        set_figures(PERFORMANCE, result["figures"])
    if options.json:
        whole = {"began": began, "arguments": sys.argv[1:], **facts, **result}
        Path(options.json).write_text(json.dumps(whole, indent=1) + "\n")
        progress(f"written: {options.json}")


if __name__ == "__main__":
    main()
