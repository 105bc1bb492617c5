"""The long test: random writes over a volume that fills most of its devices, with garbage collection running."""

import re

from . import fio
from .plan import FILL, SUSTAINED_RATIO_MIN
from .report import yes
from .sizes import parse_size
from .targets import Azekura

FILL_SHARE = 0.70
COPIES = 2
NODES = 3
INTERVAL_S = 10
MIB = 2**20


def volume_bytes(device_bytes):
    """Size of a volume whose two copies, all written, fill 70 % of three devices; whole MiB."""
    return int(device_bytes * NODES * FILL_SHARE / COPIES) // MIB * MIB


def rates(log_lines, seconds):
    """IOPS of each whole interval, from fio's per-interval averages (time in ms, value, …)."""
    buckets = [[] for _ in range(int(seconds // INTERVAL_S))]
    for line in log_lines:
        fields = re.split(r",\s*", line.strip())
        # A value stands at its interval's end.
        bucket = (int(fields[0]) - 1) // (INTERVAL_S * 1000)
        if 0 <= bucket < len(buckets):
            buckets[bucket].append(int(fields[1]))
    return [sum(bucket) / len(bucket) if bucket else 0.0 for bucket in buckets]


def last_over_first(interval_rates):
    """Rate of the last minute over that of the first."""
    minute = 60 // INTERVAL_S
    if len(interval_rates) < 2 * minute:
        raise fio.FioError("the sustained test needs two minutes or more")
    return sum(interval_rates[-minute:]) / max(sum(interval_rates[:minute]), 1e-9)


def markdown(interval_rates):
    """The rates minute by minute, in thousands a second."""
    minute = 60 // INTERVAL_S
    minutes = [interval_rates[at : at + minute] for at in range(0, len(interval_rates) - minute + 1, minute)]
    cells = [f"{sum(rates) / len(rates) / 1000:.1f}" for rates in minutes]
    heads = [str(number) for number in range(1, len(cells) + 1)]
    rows = [["minute", *heads], ["---", *["---:"] * len(cells)], ["thousands a second", *cells]]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def run(options, folder, progress):
    seconds = int(options.minutes * 60)
    size = volume_bytes(parse_size(options.device_size))
    target = Azekura.asked_for(folder, options, f"{size // MIB}MiB")
    try:
        progress(f"azekura: filling {size // MIB} MiB, {FILL_SHARE:.0%} of the devices with {COPIES} copies")
        target.start()
        fio.run(fio.command(target.engine(), size, FILL), 3600, folder)
        progress(f"random 4 KiB writes, depth 128, for {options.minutes:g} minutes")
        words = fio.command(target.engine(), size, ["--rw=randwrite", "--bs=4k", "--iodepth=128"], seconds)
        words += ["--norandommap=1", f"--write_iops_log={folder}/s", "--log_avg_msec=1000", "--per_job_logs=0"]
        cpu_before = target.cpu_seconds()
        raw = fio.run(words, seconds, folder)
        cpu_s = target.cpu_seconds() - cpu_before
        resident = [value / MIB for value in target.resident_bytes()]
    finally:
        target.stop()
    interval_rates = rates((folder / "s_iops.log").read_text().splitlines(), seconds)
    measurement = fio.measure(raw)
    for number, rate in enumerate(interval_rates):
        print(f"{number * INTERVAL_S:5} s  {rate:10,.0f} IOPS")
    ratio = last_over_first(interval_rates)
    reached = ratio >= SUSTAINED_RATIO_MIN
    cpu_us = cpu_s * 1e6 / measurement.requests
    print(
        f"last minute ÷ first minute: {ratio:.2f}, at least {SUSTAINED_RATIO_MIN} wanted: {'yes' if reached else 'no'}"
    )
    print(f"server CPU a write: {cpu_us:.1f} µs; resident MiB a node: {', '.join(f'{mib:.0f}' for mib in resident)}")
    return {
        "markdown": markdown(interval_rates),
        "figures": {"sustained": f"{ratio:.2f}: {yes(reached)}"},
        "volume_bytes": size,
        "rates_iops": interval_rates,
        "last_over_first": ratio,
        "reached": reached,
        "server_cpu_us_per_io": cpu_us,
        "resident_mib": resident,
        "fio_command": words,
        "fio": raw,
    }
