"""Several targets in turns: each test of each round is run on all of them, one after the other, in changing order."""

from . import fio
from .measure import run_test
from .plan import FILL, READ_ONCE
from .report import rate_of


def fill(target, options, folder, progress):
    progress(f"{target.name}: starting and filling {options.size}")
    target.start()
    for test in (FILL, READ_ONCE):
        fio.run(fio.command(target.engine(), options.size, test), folder=folder)


def take(targets, tests, options, folder, progress):
    """The runs of all rounds. What the disk does meanwhile meets all targets alike."""
    runs = []
    for number in range(options.rounds):
        for place, test in enumerate(tests):
            for target in targets if (number + place) % 2 == 0 else reversed(targets):
                runs.append(run_test(target, test, options, folder))
                rate, cpu = rate_of(test, runs[-1]), runs[-1].server_cpu_us
                progress(f"{test.name:18} {target.name:10} {rate:10,.0f} {cpu:8.1f} µs")
    return runs


def table(head, tables):
    """The ratios of each table, by what stands in its lines' first cell, below the cell `head`."""
    lines = [f"| {head} | test | rate | least to most | CPU a request |", "|---|---|---:|---:|---:|"]
    for first, rows in tables.items():
        for row in rows:
            spread = f"{row['least']:.2f} to {row['most']:.2f}"
            lines.append(f"| {first} | {row['test']} | {row['rate']:.2f} | {spread} | {row['cpu']:.2f} |")
    return lines
