"""What TLS between nodes and the encryption of a volume cost, beside neither; and a volume while its key is rotated."""

import time
from statistics import median

from tools.harness.process import wait_until

from . import fio, turns
from .plan import (
    ENCRYPTED_CPU_MAX,
    ENCRYPTED_RATE_MIN,
    TESTS,
    TLS_CPU_MAX,
    TLS_RATE_MIN,
)
from .report import beside, yes
from .targets import VOLUME, Azekura, Encrypted

MEASURED = ("randwrite_q128", "randread_q128", "write_4M", "read_4M")
# Of writes while the key is rotated, as of what is compared with them: fewer than the volume could bear.
BESIDE_ROTATION = "--rw=randwrite --bs=4k --numjobs=1 --iodepth=32"
ROTATED_WITHIN_S = 1800


class Tls(Azekura):
    """The same whose nodes talk over TLS, as they do by themselves where their addresses are no loopbacks."""

    name = "tls"


def tests():
    return [test for test in TESTS if test.name in MEASURED]


def is_rotated(cluster):
    return len(cluster.json("volume", "key", VOLUME)["generations"]) == 1


def rotation(target, options, folder, progress):
    """Writes a second alone and while the data key is rotated; how long that took, s; and what was passed through."""
    words = fio.command(target.engine(), options.size, BESIDE_ROTATION.split(), options.secs)

    def rate():
        return fio.measure(fio.run(words, options.secs, folder)).iops

    alone = rate()
    target.cluster.cli("volume", "rotate-key", VOLUME)
    began = time.monotonic()
    during = rate()
    assert not is_rotated(target.cluster), "the key was rotated before the writes had ended: give a larger --size"
    wait_until(lambda: is_rotated(target.cluster), ROTATED_WITHIN_S, "the former key to be forgotten")
    took = time.monotonic() - began
    progress(f"rotation           {alone:10,.0f} writes a second alone, {during:10,.0f} beside it, {took:.0f} s")
    return {"alone": alone, "beside": during, "seconds": took, "size": options.size}


def row(table, test):
    return next(line for line in table if line["test"] == test)


def figures(tables, rotations):
    """The cells of docs/performance.md. `tables`: the ratios of "tls" and of "encrypted" to neither."""
    tls, encrypted = tables["tls"], tables["encrypted"]
    write_cpu, write_rate = row(tls, "randwrite_q128")["cpu"], row(tls, "write_4M")["rate"]
    found = {
        "tls_write_cpu": f"{write_cpu:.2f}: {yes(write_cpu <= TLS_CPU_MAX)}",
        "tls_write_4M": f"{write_rate:.2f}: {yes(write_rate >= TLS_RATE_MIN)}",
    }
    for test in MEASURED:
        rate, cpu = row(encrypted, test)["rate"], row(encrypted, test)["cpu"]
        reached = yes(rate >= ENCRYPTED_RATE_MIN and cpu <= ENCRYPTED_CPU_MAX)
        found[f"encrypted_{test}"] = f"{rate:.2f}, {cpu:.2f}: {reached}"
    found["rotation"] = f"{median(turn['beside'] / turn['alone'] for turn in rotations):.2f}"
    return found


def markdown(tables, rotations):
    lines = turns.table("beside neither", tables)
    lines += ["", "| rotation | writes a second alone | beside it | ratio | it took, s |", "|---:|---:|---:|---:|---:|"]
    for number, turn in enumerate(rotations, 1):
        ratio = f"{turn['beside'] / turn['alone']:.2f} | {turn['seconds']:.0f}"
        lines.append(f"| {number} | {turn['alone']:,.0f} | {turn['beside']:,.0f} | {ratio} |")
    return "\n".join(lines)


def run(options, folder, progress):
    like = (folder, options.volume_size, options.device_size, "etcd" if options.etcd else "embedded")
    plain, encrypted = Azekura(*like, transport="plain"), Encrypted(*like, transport="plain")
    targets = [plain, Tls(*like, transport="tls"), encrypted]
    try:
        for target in targets:
            turns.fill(target, options, folder, progress)
        runs = turns.take(targets, tests(), options, folder, progress)
        rotations = [rotation(encrypted, options, folder, progress) for _ in range(options.rounds)]
    finally:
        for target in targets:
            target.stop()
    tables = {name: beside(tests(), runs, (name, plain.name)) for name in ("tls", "encrypted")}
    table = markdown(tables, rotations)
    print(table)
    return {"markdown": table, "figures": figures(tables, rotations), "ratios": tables, "rotations": rotations}
