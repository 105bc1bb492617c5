"""The torment's own parts, and a short torment: one kill, one stop, one cut (`./dev torment` runs longer ones)."""

import math
import subprocess
import sys

import pytest

from tools.harness.cluster import ROOT

from .registers import Operation, faults


def write(value, start, end=math.inf):
    return Operation("write", value, start, end)


def read(value, start, end):
    return Operation("read", value, start, end)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [read(0, 1, 2)],
        [write(1, 0, 1), read(1, 2, 3)],
        # While a write is under way both values may be read, by readers that do not follow each other the wrong way.
        [write(1, 0, 10), read(0, 1, 2), read(1, 3, 4), read(1, 5, 6)],
        [write(1, 0, 10), read(1, 3, 6), read(0, 2, 4)],
        # Two writes at once: either order.
        [write(1, 0, 5), write(2, 0, 5), read(1, 6, 7)],
        [write(1, 0, 5), write(2, 0, 5), read(2, 6, 7)],
        # An unanswered write may come about late, or never.
        [write(1, 0), write(2, 1, 2), read(2, 3, 4), read(1, 5, 6)],
        [write(1, 0), write(2, 1, 2), read(2, 3, 4)],
        [write(1, 0, 1), write(2, 1.5, 9), read(1, 2, 3), write(3, 4, 5), read(3, 6, 7), read(2, 8, 9)],
    ],
)
def test_linearizable_histories(history):
    assert faults(history) == []


@pytest.mark.parametrize(
    "history",
    [
        # A lost write.
        [write(1, 0, 1), read(0, 2, 3)],
        # A stale read, of a former primary say.
        [write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)],
        # There, and gone again.
        [write(1, 0, 10), read(1, 1, 2), read(0, 3, 4)],
        [write(1, 0, 1), write(2, 2), read(2, 3, 4), read(1, 5, 6)],
        # An unanswered write that comes about twice.
        [write(1, 0), read(1, 1, 2), write(2, 3, 4), read(1, 5, 6)],
        # From the future, and from nowhere.
        [read(1, 0, 1), write(1, 2, 3)],
        [read(7, 0, 1)],
        # Two readers that see two writes in two orders.
        [write(1, 0, 9), write(2, 0, 9), read(1, 1, 2), read(2, 3, 4), read(1, 5, 6)],
    ],
)
def test_histories_that_are_not_linearizable(history):
    assert faults(history) != []


@pytest.mark.root
def test_short_torment(tmp_path):
    """In namespaces of its own; the faults come in this order, and whatever is missing afterwards is in the output."""
    command = [sys.executable, "-m", "tools.torment", "--plan", "kill,stand_still,cut_off", "--light", "--seed", "1"]
    command += ["--nodes", "3", "--shards", "2", "--logs", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
