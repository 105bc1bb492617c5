"""Programs that the cluster starts and waits for."""

import os
import subprocess
import time

from .place import LOGS

WITHIN_S = 180


def run(*command):
    subprocess.run(list(map(str, command)), check=True)


def until(what, *command):
    end = time.monotonic() + WITHIN_S
    while subprocess.run(list(map(str, command)), capture_output=True).returncode != 0:
        if time.monotonic() > end:
            raise SystemExit(f"{what} does not answer within {WITHIN_S} s: see {LOGS}")
        time.sleep(0.5)


class Programs:
    """What was started, and whether it is still there: the first process of a namespace has to look after all."""

    def __init__(self):
        self.running = {}

    def start(self, name, *command):
        log = open(LOGS / f"{name}.log", "ab")
        started = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.running[started.pid] = name
        print(f"{time.strftime('%T')} started {name}", flush=True)

    def wait(self):
        """Until nothing is left. Processes whose parents have ended come here, too."""
        while True:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                return
            if pid in self.running:
                print(f"{time.strftime('%T')} {self.running.pop(pid)} has ended: {status}", flush=True)
