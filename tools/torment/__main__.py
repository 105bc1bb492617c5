"""`python -m tools.torment`: see ./dev torment --help."""

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from tools.harness.cluster import binary
from tools.harness.document import RELIABILITY, circumstances, replace_part, set_figures
from tools.harness.folders import new_folder

from . import faults, isolation, shards
from .figures import Figures
from .programs import Fio, Postgres
from .rig import Rig
from .torment import Torment, say


def parse():
    parser = argparse.ArgumentParser(prog="./dev torment")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--shards", type=shards.parse, help="of each node, or 'draw' (the default, but for figures)")
    parser.add_argument(
        "--faults", help="only these kinds, separated by commas: " + ", ".join(sorted(faults.CATALOGUE))
    )
    parser.add_argument("--plan", help="these faults, one after the other, instead of --minutes of random ones")
    parser.add_argument("--light", action="store_true", help="without fio and PostgreSQL")
    parser.add_argument("--record", action="store_true", help="write the result into docs/reliability.md")
    parser.add_argument("--logs", type=Path, help="where logs go when something is wrong")
    parser.add_argument("--figures", nargs="*", metavar="FIGURE", help="measure docs/reliability.md's figures instead")
    return parser.parse_args()


def main():
    arguments = parse()
    isolation.enter()
    # Process 1 gets no signal that it has no handler for.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = arguments.seed if arguments.seed is not None else int(time.time()) % 1_000_000
    folder = new_folder("azt-")
    code = 3
    try:
        code = run(arguments, seed, folder)
    except KeyboardInterrupt:
        code = 130
    finally:
        if code not in (0, 130):
            keep_logs(folder, arguments.logs or Path.cwd() / ".torment" / f"seed-{seed}")
        shutil.rmtree(folder, ignore_errors=True)
    return code


def run(arguments, seed, folder):
    say(f"binary {binary()}, seed {seed}, folder {folder}")
    counts = shards_of(arguments, seed)
    say(f"shards: {shards.described(counts)}")
    rig = Rig(folder / "rig", counts)
    programs = []
    try:
        rig.start()
        if arguments.figures is not None:
            return measure(rig, seed, arguments)
        rig.create_volume("vol1", "1GiB", copies=2, shared=True)
        make_second_volume(rig)
        rig.nodes[-1].put_device_behind_server()
        rig.wait_healthy()
        if not arguments.light:
            programs = start_programs(rig, folder)
        kinds = arguments.faults.split(",") if arguments.faults else None
        torment = Torment(rig, seed, programs, kinds)
        plan = arguments.plan.split(",") if arguments.plan else None
        outcome = torment.run(arguments.minutes * 60, plan)
        result = result_of(torment, arguments.minutes, counts)
        print(result, flush=True)
        if arguments.record:
            replace_part(RELIABILITY, "torment", f"{circumstances(arguments.nodes)}\n\n{result}")
            found = f"{len(outcome.problems)} in {arguments.minutes:g} min, {sum(outcome.injected.values())} faults"
            figures = {"torment": found}
            hangs = [pause for kind, pause in outcome.worst_pause.items() if kind in HANGS]
            if hangs:
                figures["torment hangs"] = f"{max(hangs):.2f} s"
            set_figures(RELIABILITY, figures)
        faults_done = sum(outcome.injected.values())
        say(f"seed {seed}: {len(outcome.problems)} problems, {faults_done} faults; shards: {shards.described(counts)}")
        for text in outcome.problems:
            print(f"  {text}")
        return 1 if outcome.problems else 0
    finally:
        for program in programs:
            program.close()
        rig.destroy_processes()


def shards_of(arguments, seed):
    """The shards of each node: drawn, unless a number is given or figures are measured, which are compared."""
    measures = arguments.figures is not None
    wanted = arguments.shards or (1 if measures else shards.DRAW)
    return shards.of_nodes(wanted, seed, 3 if measures else arguments.nodes)


def result_of(torment, minutes, counts):
    """The result as Markdown; its last line says how it came about."""
    problems = len(torment.outcome.problems)
    how = f"Minutes: {minutes:g}, seed {torment.seed}, shards: {shards.described(counts)}."
    return f"{torment.table()} {how} Problems: {problems}."


# Kinds of faults in which a device stands still.
HANGS = {"device_hangs", "device_hangs_for_long"}


def make_second_volume(rig):
    """One whose writes always wait for two copies: while one is away they wait, however long."""
    rig.cli("class", "create", "both", "--copies", 2, "--copies-min", 2, "--io-timeout", "never")
    rig.cli("volume", "create", "both", "512MiB", "--class", "both", "--shared")


def measure(rig, seed, arguments):
    figures = Figures(rig, seed, arguments.minutes)
    for name, markdown in figures.run(arguments.figures):
        print(markdown, flush=True)
        replace_part(RELIABILITY, name, markdown)
        set_figures(RELIABILITY, figures.cells(name))
    for text in figures.failures:
        print(f"  {text}")
    return 1 if figures.failures else 0


def start_programs(rig, folder):
    say("making PostgreSQL's database on its volume")
    rig.create_volume("fio", "64MiB", copies=2)
    rig.create_volume("pg", "1GiB", copies=2)
    return [Fio(rig, folder), Postgres(rig, folder)]


def keep_logs(folder, where):
    where.mkdir(parents=True, exist_ok=True)
    for log in folder.rglob("*.log"):
        shutil.copy(log, where / log.name)
    print(f"logs: {where}", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    sys.exit(main())
