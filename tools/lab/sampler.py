"""CPU, memory, cache and device counters of a target over time, sampled beside a test."""

import threading
import time

from . import proc


class Sampler:
    """Samples `target` every `interval_s` between entering and leaving the context.

    `series` holds one dict a sample: `t` in seconds since the start, `cpu` in cores since the last sample, `rss` in
    bytes, and for each of the target's own counters (see Target.counters) its increase a second.
    """

    SAMPLES_MAX = 2000

    def __init__(self, target, interval_s=1.0):
        self.target = target
        self.interval_s = interval_s
        self.series = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self):
        self._began = self._last_at = time.monotonic()
        self._last = self._read()
        self.before = self._last[0]
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()
        self._sample()
        self.after = self._last[0]

    @property
    def cpu_s(self):
        """CPU time that the target's processes spent within the context."""
        return self.after.cpu_s - self.before.cpu_s

    @property
    def resident_bytes(self):
        """Resident memory of the target's processes at the end."""
        return self.after.resident_bytes

    def _read(self):
        return proc.usage(self.target.pids()), self.target.counters()

    def _run(self):
        while not self._stopped.wait(self.interval_s):
            if len(self.series) < self.SAMPLES_MAX:
                try:
                    self._sample()
                except (OSError, ValueError):
                    # A target that ends or does not answer: the test itself, or the last sample, will tell.
                    return

    def _sample(self):
        now = time.monotonic()
        seconds = now - self._last_at
        usage, counters = self._read()
        last_usage, last_counters = self._last
        if seconds > 0.05:
            sample = {
                "t": round(now - self._began, 2),
                "cpu": round((usage.cpu_s - last_usage.cpu_s) / seconds, 3),
                "rss": usage.resident_bytes,
            }
            for name, value in counters.items():
                sample[name] = round((value - last_counters.get(name, 0)) / seconds, 1)
            self.series.append(sample)
        self._last, self._last_at = (usage, counters), now
