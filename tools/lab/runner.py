"""Runs the steps of a plan that the results do not have yet."""

import itertools
import os
import shutil
import sys
import time
from pathlib import Path

from tools.bench import machine
from tools.harness.folders import new_folder

from . import packages, results, targets
from .experiments import lookup as experiment
from .filesystems import keep_mounts_private
from .live import Live
from .network import Network, measured_mib_s

# No experiment takes the last of the disk: this much stays free beside what a target may come to use.
DISK_RESERVE_BYTES = 8 * 2**30
# Stopping a target and writing a volume of a gibibyte, for the estimate of the end only.
STOP_S = 2
FILL_S_A_GIB = 4
NETWORK_NODES = 3
# Seconds between two samples of CPU, memory and counters.
SAMPLE_S = 0.5
FOLDER_PREFIX = "azlab-"


def steps_of(plan):
    """[(fingerprint of the settings, Step)] in the order in which they run."""
    found = []
    for name, settings in plan.experiments.items():
        mark = results.fingerprint(settings)
        found += [(mark, step) for step in experiment(name).steps(settings)]
    return found


class Progress:
    """Lines on standard error: how far, what was measured, about when it ends."""

    def __init__(self, pending):
        self.total = len(pending)
        self.count = 0
        self.expected_s = estimate_s(pending)
        self.expected_done_s = 0.0
        self.began = time.monotonic()

    def remaining_s(self):
        """What is left by the estimate, corrected by how the estimate fared so far."""
        passed = time.monotonic() - self.began
        left = self.expected_s - self.expected_done_s
        if self.expected_done_s < 20:
            return left
        return left * passed / self.expected_done_s

    def starting(self, setup):
        self.say(f"starting {setup.label}")
        self.expected_done_s += setup_s(setup)

    def finished(self, step, line):
        self.count += 1
        self.expected_done_s += step.seconds
        if "data" in line:
            outcome = experiment(step.experiment).told(line["data"])
        else:
            # A failure's time says nothing of the steps to come.
            self.began += max(0.0, line.get("seconds", 0.0) - step.seconds)
            outcome = f"FAILED: {line['failed']}" if "failed" in line else f"not available: {line['unavailable']}"
        left = self.remaining_s()
        end = time.strftime("%H:%M", time.localtime(time.time() + left))
        what = f"{step.experiment} {step.part} {step.setup.label}: {step.test}, round {step.round}"
        self.say(f"[{self.count}/{self.total}] {what}: {outcome}  (about {duration(left)} left, until {end})")

    @staticmethod
    def say(text):
        print(text, file=sys.stderr, flush=True)


def duration(seconds):
    minutes = max(0, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def estimate_s(pending):
    """Seconds that the pending steps will take, roughly."""
    return sum(step.seconds for _, step in pending) + sum(setup_s(setup) for (_, setup), _ in _by_setup(pending))


def setup_s(setup):
    """Seconds that starting, filling and stopping will take, roughly."""
    kind, options = targets.lookup(setup.target)
    devices = {**options, **dict(setup.options)}.get("devices", 0)
    filled_gib = setup.volumes * setup.volume_bytes / 2**30 if setup.fill else 0
    return kind.start_s + kind.start_s_a_device * devices + filled_gib * FILL_S_A_GIB + STOP_S


def pending_steps(plan, kept):
    """The plan's steps that `kept` (a Results) does not have."""
    everything = steps_of(plan)
    done = {
        (name, mark): kept.done(name, mark) for name, mark in {(step.experiment, mark) for mark, step in everything}
    }
    return [(mark, step) for mark, step in everything if step.key not in done[step.experiment, mark]]


def _by_setup(pending):
    """Steps that share a started target: those that follow each other with equal setups in one session."""
    return itertools.groupby(pending, key=lambda pair: (pair[1].session, pair[1].setup))


def run(plan, kept, arguments):
    """Runs what is pending and returns how many steps failed."""
    pending = pending_steps(plan, kept)
    progress = Progress(pending)
    if not pending:
        progress.say("everything of this plan is measured; --fresh measures it anew")
        return 0
    progress.say(f"{len(pending)} steps, about {duration(progress.expected_s)}")
    keep_mounts_private()
    kept.append(
        {
            "kind": "session",
            "format": results.FORMAT,
            "began": now(),
            "arguments": arguments,
            "plan": plan.name,
            "about": plan.about,
            "settings": plan.experiments,
            "machine": machine.describe(),
            "versions": machine.versions(),
        }
    )
    failed = 0
    for (_, setup), group in _by_setup(pending):
        failed += _run_group(setup, list(group), kept, progress)
    return failed


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _run_group(setup, group, kept, progress):
    """Starts the target, runs the steps on it, stops it. Whatever goes wrong is noted with each step that it hit."""
    progress.starting(setup)
    stage = _Stage(setup, str(new_folder(FOLDER_PREFIX)))
    failed = 0
    try:
        live = refusal = None
        try:
            live = stage.start(kept)
        except packages.Unavailable as reason:
            refusal = {"unavailable": str(reason)}
        except Exception as error:  # a target that does not start must not end the other targets' run
            refusal = {"failed": _told(error)}
        for mark, step in group:
            line = _measure(step, mark, live) if live else {**step_head(step, mark), **refusal}
            kept.append(line)
            failed += "failed" in line
            progress.finished(step, line)
    finally:
        stage.stop(progress)
    return failed


def _told(error):
    return f"{type(error).__name__}: {error}"[:2000]


class _Stage:
    """A setup's network, target and folder, from start to stop."""

    def __init__(self, setup, folder):
        self.setup, self.folder = setup, folder
        self.network = self.target = self.line_mib_s = None

    def start(self, kept):
        kind, options = targets.lookup(self.setup.target)
        packages.ensure(kind.tools)
        if self.setup.rate:
            self.network = Network(NETWORK_NODES, self.setup.rate)
            if not kind.networked:
                raise packages.Unavailable("has no servers on other machines")
            self.network.start()
            self.line_mib_s = measured_mib_s(self.network)
        place = targets.Place(
            folder=Path(self.folder),
            volumes=self.setup.volumes,
            volume_bytes=self.setup.volume_bytes,
            network=self.network,
            written_share=self.setup.written_share,
        )
        self.target = kind(place, **{**options, **dict(self.setup.options)})
        if reason := self.target.unsupported():
            raise packages.Unavailable(reason)
        need_disk(self.folder, self.target.disk_bytes())
        began = time.monotonic()
        self.target.start()
        live = Live(self.target, SAMPLE_S, self.line_mib_s)
        if self.setup.fill:
            live.fill()
        kept.append(
            {
                "kind": "setup",
                "began": now(),
                "target": self.setup.target,
                "label": self.setup.label,
                "rate": self.setup.rate,
                "line_mib_s": self.line_mib_s,
                "ready_s": round(time.monotonic() - began, 2),
                "versions": self.target.versions(),
                "commands": self.target.commands(),
            }
        )
        return live

    def stop(self, progress):
        for what in (self.target, self.network):
            if what is not None:
                try:
                    what.stop()
                except Exception as error:  # told, and the rest is still taken down
                    progress.say(f"stopping {self.setup.label}: {_told(error)}")
        shutil.rmtree(self.folder, ignore_errors=True)


def need_disk(folder, wanted_bytes):
    """Unavailable when `wanted_bytes` and the reserve are not free."""
    free = shutil.disk_usage(folder).free
    if free < wanted_bytes + DISK_RESERVE_BYTES:
        gib = 2**30
        raise packages.Unavailable(
            f"may come to use {wanted_bytes / gib:.1f} GiB of disk, {free / gib:.1f} GiB are free "
            f"and {DISK_RESERVE_BYTES / gib:.0f} GiB stay free"
        )


def step_head(step, mark):
    """What a step's line says of it whether or not it could be measured."""
    return {
        "kind": "step",
        "key": step.key,
        "mark": mark,
        "experiment": step.experiment,
        "part": step.part,
        "target": step.setup.target,
        "options": dict(step.setup.options),
        "label": step.setup.label,
        "test": step.test,
        "round": step.round,
        "began": now(),
        "load": os.getloadavg()[0],
    }


def _measure(step, mark, live):
    line = step_head(step, mark)
    began = time.monotonic()
    try:
        line["data"] = step.action(live)
    except packages.Unavailable as reason:
        line["unavailable"] = str(reason)
    except Exception as error:  # noted; the next test may well run
        line["failed"] = "\n".join(filter(None, [_told(error), live.target.ended()]))
    line["seconds"] = round(time.monotonic() - began, 2)
    return line
