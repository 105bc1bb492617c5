"""The network of namespaces: lines carry what they are shaped to, and nothing is left behind."""

import os
import subprocess

import pytest

from . import network

# A gigabit a second is 119.2 MiB/s with every header; a burst may go over for a moment.
LINE_MIB_S_MAX = 126

pytestmark = [pytest.mark.alone, pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")]


def namespaces():
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout


def test_a_line_carries_no_more_than_its_rate():
    lines = network.Network(2)
    try:
        lines.start()
        assert 1 < network.measured_mib_s(lines, 2) < LINE_MIB_S_MAX
    finally:
        lines.stop()
    assert f"-{os.getpid()}-" not in namespaces()


def test_what_a_killed_lab_left_is_removed():
    child = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True)
    left = f"{network.PREFIX}-{child.stdout.strip()}-n1"
    subprocess.run(["ip", "netns", "add", left], check=True)
    network.remove_leftovers()
    assert left not in namespaces()
