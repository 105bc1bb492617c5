"""Sampling a target beside a test: rates out of rising counters, and a target that ends meanwhile."""

import os
import time

import pytest

from .sampler import Sampler


class Steady:
    """This process as a target, with a counter that rises by 1,000 each time that it is asked."""

    def __init__(self):
        self.asked = 0
        self.answers = True

    def pids(self):
        return [os.getpid()]

    def counters(self):
        if not self.answers:
            raise OSError("gone")
        self.asked += 1
        return {"cache_hits": self.asked * 1000}


def test_counters_become_rates():
    target = Steady()
    with Sampler(target, interval_s=0.2) as sampler:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
    times = [0, *(sample["t"] for sample in sampler.series)]
    assert len(times) > 2 and times == sorted(times)
    # Rates times seconds are what the counter rose by; times are kept to a hundredth of a second.
    risen = sum(s["cache_hits"] * (end - begin) for s, begin, end in zip(sampler.series, times, times[1:]))
    # The last sample is left out where it is too close to the one before.
    assert target.asked - 2 <= len(sampler.series) <= target.asked - 1
    assert risen == pytest.approx(len(sampler.series) * 1000, rel=0.25)
    assert sampler.cpu_s >= 0.25 and sampler.resident_bytes > 2**20


def test_a_target_that_ends_is_told_at_the_end():
    target = Steady()
    with pytest.raises(OSError, match="gone"), Sampler(target, interval_s=0.05):
        target.answers = False
        time.sleep(0.2)
