"""Reading /proc, on what Linux 6.18 showed of a process called "a b) c" (tools/lab/recorded)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import proc

RECORDED = Path(__file__).parent / "recorded"


def test_times_are_found_behind_a_name_with_spaces_and_brackets():
    text = (RECORDED / "stat.txt").read_text()
    assert "(a b) c)" in text
    # utime 6 and stime 1 ticks; the figures behind them are those of children that were waited for.
    assert proc.parse_stat_cpu_s(text) == pytest.approx(7 / proc.TICKS_PER_S)


def test_memory_and_bytes():
    assert proc.parse_status_resident_bytes((RECORDED / "status.txt").read_text()) % 1024 == 0
    assert proc.parse_status_resident_bytes("Name:\tgone\nState:\tZ (zombie)\n") == 0
    assert proc.parse_io((RECORDED / "io.txt").read_text()) == (20480, 20996096)


def test_a_process_that_ended_costs_nothing_more():
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    assert proc.usage([int(child.stdout)]) == proc.Usage()


def test_usage_is_the_sum():
    one = proc.usage_of(os.getpid())
    assert one.resident_bytes > 2**20 and one.cpu_s > 0
    both = proc.usage([os.getpid(), os.getpid()])
    assert both.resident_bytes >= 1.5 * one.resident_bytes
