"""`python -m tools.fuzz`: see ./dev fuzz --help."""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event

from tools.harness.cluster import ROOT
from tools.harness.document import SECURITY, commit

from .listed import LISTED
from .table import HEAD, recorded, row

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is less than 1")
    return number


def parse():
    parser = argparse.ArgumentParser(prog="./dev fuzz")
    parser.add_argument("--inputs", type=positive, default=100_000)
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="ports and tests")
    parser.add_argument("--threads", type=positive, default=os.cpu_count(), help="tests side by side")
    parser.add_argument("--record", action="store_true", help="write the rows into docs/security.md")
    return parser.parse_args()


def programs(tests):
    """Builds the programs of these tests: (crate, target) → path."""
    command = ["cargo", "test", "--profile", "fuzz", "--lib", "--tests", "--no-run", "--message-format=json"]
    for crate in sorted({test.crate for test in tests}):
        command += ["-p", f"azekura-{crate}"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        raise SystemExit("error: the tests could not be built (messages above)")
    found = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            crate = Path(message["manifest_path"]).parent.name
            found[crate, message["target"]["name"]] = message["executable"]
    return found


class Runs:
    """The tests' programs while they run."""

    def __init__(self, found, inputs):
        self.found, self.inputs = found, inputs
        self.stopped = Event()
        self.children = []

    def run(self, test):
        """Gives one test its inputs; seconds that took, or None when others have failed meanwhile."""
        program = self.found.get((test.crate, test.target))
        names = [] if program is None else subprocess.check_output([program, "--list"], text=True).splitlines()
        # Several modules may have one of this name: all of them are meant.
        full = [name.removesuffix(": test") for name in names if re.search(rf"\b{test.name}: test$", name)]
        if not full:
            raise RuntimeError(
                f"crate {test.crate} has no test {test.name} in {test.target} any more; tools/fuzz/listed.py names it"
            )
        log = TARGET / f"fuzz-{test.crate}-{test.name.replace('::', '-')}.log"
        began = time.monotonic()
        with open(log, "w", encoding="utf-8") as output:
            if self.stopped.is_set():
                return None
            child = subprocess.Popen(
                [program, "--exact", *full],
                cwd=ROOT / "crates" / test.crate,
                env=os.environ | {"PROPTEST_CASES": str(test.inputs(self.inputs))},
                stdout=output,
                stderr=output,
            )
            self.children.append(child)
            code = child.wait()
        if self.stopped.is_set():
            return None
        if code != 0:
            raise RuntimeError(f"{test.port}: {test.name} failed; what it says is in {log}")
        return time.monotonic() - began

    def stop(self):
        self.stopped.set()
        for child in self.children:
            if child.poll() is None:
                child.terminate()


def main():
    arguments = parse()
    tests = [test for test in LISTED if arguments.only.search(f"{test.port} {test.name}")]
    if not tests:
        raise SystemExit(f"error: no port and no test is named like '{arguments.only.pattern}'")
    print(f"building {len(tests)} tests", file=sys.stderr)
    runs = Runs(programs(tests), arguments.inputs)
    print(HEAD, flush=True)
    with ThreadPoolExecutor(arguments.threads) as pool:
        try:
            under_way = {pool.submit(runs.run, test): test for test in tests}
            for ended in as_completed(under_way):
                seconds, test = ended.result(), under_way[ended]
                line = row(test, test.inputs(arguments.inputs), seconds, commit(), time.strftime("%Y-%m-%d"))
                print(line, flush=True)
                if arguments.record:
                    # At once: a run that is broken off keeps what was done.
                    SECURITY.write_text(recorded(SECURITY.read_text(), line))
        except (RuntimeError, KeyboardInterrupt) as error:
            runs.stop()
            pool.shutdown(cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                return 130
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
