"""The cluster's coming and going; see ./dev kubernetes --help."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import faults, inside, keys, machine
from .place import (
    CGROUPS,
    COUNT,
    FOLDERS,
    LOGS,
    OUTER_PID,
    READY,
    ROOT,
    STATE,
    ZONES,
    entered,
    environment,
    inner_pid,
    machines,
)
from .place import machine as named

WITHIN_S = 600


def up(options):
    if inner_pid() is not None:
        if READY.exists():
            print("kubernetes: the cluster is up already", file=sys.stderr)
            return
        raise SystemExit("kubernetes: a cluster is half up: ./dev kubernetes down, then again")
    # A cluster begins empty: what a former one has left is of no use to it.
    shutil.rmtree(STATE, ignore_errors=True)
    LOGS.mkdir(parents=True)
    COUNT.write_text(str(options.machines))
    keys.make()
    namespaces = ["unshare", "--mount", "--net", "--pid", "--propagation", "private", "--fork", "--kill-child"]
    command = [*namespaces, "--mount-proc", sys.executable, "-m", "tools.kubernetes", "inside-enter"]
    environ = {**environment(), "AZEKURA_KUBERNETES_SUITE": "yes" if options.suite else ""}
    with open(LOGS / "up.log", "ab") as log:
        outer = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log, start_new_session=True)
    OUTER_PID.write_text(str(outer.pid))
    end = time.monotonic() + WITHIN_S
    while not READY.exists():
        if outer.poll() is not None or time.monotonic() > end:
            told = (LOGS / "up.log").read_text()[-3000:]
            down(options)
            raise SystemExit(f"{told}\nkubernetes: the cluster has not come up: its logs are in {LOGS}")
        time.sleep(0.5)


def down(_options):
    """Ends the namespaces' first process, and all in them with it, and nothing else."""
    all_machines = machines() if COUNT.exists() else []
    devices = faults.loops(*all_machines)
    faults.silence(*all_machines)
    try:
        outer = int(OUTER_PID.read_text())
        if b"tools.kubernetes" in Path(f"/proc/{outer}/cmdline").read_bytes():
            # unshare passes no other signal on; with --kill-child its own end is that of the namespaces.
            os.kill(outer, signal.SIGKILL)
            while Path(f"/proc/{outer}").exists() and Path(f"/proc/{outer}/stat").read_text().split()[2] != "Z":
                time.sleep(0.1)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        pass
    faults.detach(devices)
    faults.remove_groups()
    for line in FOLDERS.read_text().splitlines() if FOLDERS.exists() else []:
        try:
            Path(line).rmdir()
        except OSError as error:
            print(f"kubernetes: {line} stays: {error}", file=sys.stderr)
    for path in (OUTER_PID, CGROUPS, FOLDERS, READY):
        path.unlink(missing_ok=True)


def run_in(options):
    command = entered(options.command)
    os.execvpe(command[0], command, environment())


def run_on(options):
    command = faults.on(named(options.name), options.command)
    os.execvpe(command[0], command, environment())


def main():
    parser = argparse.ArgumentParser(prog="./dev kubernetes")
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("up")
    part.add_argument("--suite", action="store_true")
    part.add_argument("--machines", type=int, default=1, choices=range(1, 1 + len(ZONES)))
    part.set_defaults(run=up)
    parts.add_parser("down").set_defaults(run=down)
    part = parts.add_parser("in")
    part.add_argument("command", nargs=argparse.REMAINDER)
    part.set_defaults(run=run_in)
    part = parts.add_parser("machine")
    part.add_argument("fault", choices=faults.FAULTS)
    part.add_argument("name")
    part.set_defaults(run=lambda options: faults.FAULTS[options.fault](named(options.name)))
    part = parts.add_parser("on")
    part.add_argument("name")
    part.add_argument("command", nargs=argparse.REMAINDER)
    part.set_defaults(run=run_on)
    for inner, step in (("start", machine.start), ("enter", machine.enter), ("run", machine.first_process)):
        part = parts.add_parser(f"machine-{inner}")
        part.add_argument("name")
        part.set_defaults(run=lambda options, step=step: step(named(options.name)))
    parts.add_parser("inside-enter").set_defaults(run=lambda _: inside.enter())
    suite = bool(os.environ.get("AZEKURA_KUBERNETES_SUITE"))
    parts.add_parser("inside-run").set_defaults(run=lambda _: inside.first_process(suite))
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
