"""A started target in the hands of a step: running clients against it and noting what they and the target did."""

import threading
from dataclasses import asdict

from tools.bench import fio
from tools.bench.plan import FILL

from .sampler import Sampler

FILL_WITHIN_S = 1800
MIB = 2**20


class Live:
    """`target` is started; `interval_s` is the time between two samples of what it uses; `line_mib_s` is what a line
    between two nodes carried by plain TCP, where there are lines."""

    def __init__(self, target, interval_s, line_mib_s=None):
        self.target = target
        self.interval_s = interval_s
        self.line_mib_s = line_mib_s

    def fio_command(self, arguments, seconds=None, volume=0, size=None):
        words = fio.command(self.target.engine(volume), size or self.target.place.volume_bytes, arguments, seconds)
        return [*self.target.client_prefix(), *words]

    def fill(self):
        """Writes every volume over its whole length."""
        for volume in range(self.target.place.volumes):
            fio.run(self.fio_command(FILL, volume=volume), FILL_WITHIN_S, self.target.folder)

    def fio(self, arguments, seconds=None, size=None):
        """One fio on the first volume: its measurement, and what the target used meanwhile."""
        words = self.fio_command(arguments, seconds, size=size)
        with self.sampled() as sampler:
            report = fio.run(words, seconds or FILL_WITHIN_S, self.target.folder)
        measurement = fio.measure(report)
        return {
            **asdict(measurement),
            **self.usage(sampler, measurement.requests),
            "command": words,
            "fio": report,
        }

    def fio_each(self, arguments, seconds, clients):
        """`clients` fios at once, each on a volume of its own: a list of (command, report), in order of volumes."""
        commands = [self.fio_command(arguments, seconds, volume=volume) for volume in range(clients)]
        outcomes = [None] * clients

        def run(number):
            try:
                outcomes[number] = fio.run(commands[number], seconds, self.target.folder)
            except Exception as error:  # handed to the caller's thread below
                outcomes[number] = error

        threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
        with self.sampled() as sampler:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return list(zip(commands, outcomes)), sampler

    def sampled(self):
        return Sampler(self.target, self.interval_s)

    def usage(self, sampler, requests=None):
        """What the target's processes used, for the notes; without processes only the series is there."""
        if not self.target.pids():
            return {"series": []}
        used = {
            "server_cpu_s": round(sampler.cpu_s, 3),
            "resident_mib": round(sampler.resident_bytes / MIB, 1),
            "series": sampler.series,
        }
        if requests:
            used["server_cpu_us"] = round(sampler.cpu_s * 1e6 / requests, 2)
        return used
