"""The cluster's coming and going; see ./dev kubernetes --help."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import inside, keys
from .place import CGROUPS, FOLDERS, LOGS, OUTER_PID, READY, ROOT, STATE, entered, environment, inner_pid

WITHIN_S = 600
TEXT = {"capture_output": True, "text": True}


def up(options):
    if inner_pid() is not None:
        if READY.exists():
            print("kubernetes: the cluster is up already", file=sys.stderr)
            return
        raise SystemExit("kubernetes: a cluster is half up: ./dev kubernetes down, then again")
    # A cluster begins empty: what a former one has left is of no use to it.
    shutil.rmtree(STATE, ignore_errors=True)
    LOGS.mkdir(parents=True)
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


def loops():
    """Loop devices of the cluster's volumes. These are the machine's, and stay when the namespaces end."""
    if inner_pid() is None:
        return []
    listed = subprocess.run(entered(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"]), **TEXT)
    return [line.split()[0] for line in listed.stdout.splitlines() if "/run/azekura-csi/" in line]


def down(_options):
    """Ends the namespaces' first process, and all in them with it, and nothing else."""
    devices = loops()
    try:
        outer = int(OUTER_PID.read_text())
        if b"tools.kubernetes" in Path(f"/proc/{outer}/cmdline").read_bytes():
            # unshare passes no other signal on; with --kill-child its own end is that of the namespaces.
            os.kill(outer, signal.SIGKILL)
            while Path(f"/proc/{outer}").exists() and Path(f"/proc/{outer}/stat").read_text().split()[2] != "Z":
                time.sleep(0.1)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        pass
    for device in devices:
        subprocess.run(["losetup", "--detach", device], check=True)
    for line in CGROUPS.read_text().splitlines() if CGROUPS.exists() else []:
        group = Path(line)
        for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            _remove(folder)
        _remove(group)
    for line in FOLDERS.read_text().splitlines() if FOLDERS.exists() else []:
        try:
            Path(line).rmdir()
        except OSError as error:
            print(f"kubernetes: {line} stays: {error}", file=sys.stderr)
    for path in (OUTER_PID, CGROUPS, FOLDERS, READY):
        path.unlink(missing_ok=True)


def _remove(group):
    """A control group is gone when its last process is."""
    for _ in range(50):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.1)
    print(f"kubernetes: {group} is still used by somebody", file=sys.stderr)


def run_in(options):
    command = entered(options.command)
    os.execvpe(command[0], command, environment())


def main():
    parser = argparse.ArgumentParser(prog="./dev kubernetes")
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("up")
    part.add_argument("--suite", action="store_true")
    part.set_defaults(run=up)
    parts.add_parser("down").set_defaults(run=down)
    part = parts.add_parser("in")
    part.add_argument("command", nargs=argparse.REMAINDER)
    part.set_defaults(run=run_in)
    parts.add_parser("inside-enter").set_defaults(run=lambda _: inside.enter())
    suite = bool(os.environ.get("AZEKURA_KUBERNETES_SUITE"))
    parts.add_parser("inside-run").set_defaults(run=lambda _: inside.first_process(suite))
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
