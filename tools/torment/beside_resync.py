"""What clients feel of a resync, and how fast that is: `python3 -m tools.torment.beside_resync`. No root is needed.

Three nodes, one volume with three copies. While fio writes 4 KiB at random, eight at a time, its latencies are taken
first alone and then beside the return of a node of which every block has changed.
"""

import argparse
import json
import shutil
import subprocess
import threading
import time

from tools.harness.cluster import Cluster, run_cli
from tools.harness.document import RELIABILITY, circumstances, replace_part, set_figures
from tools.harness.folders import new_folder
from tools.harness.process import wait_until

CHUNK_S = 10


def fio(uri, size, *options):
    """Runs fio on a volume; its JSON."""
    command = ["fio", "--name=f", "--ioengine=nbd", f"--uri={uri}", f"--size={size}", "--output-format=json", *options]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout[result.stdout.index("{") :])["jobs"][0]["write"]


def fill(cluster, size, seed):
    fio(cluster.first.uri(), size, "--rw=write", "--bs=1M", "--iodepth=4", f"--randseed={seed}", "--refill_buffers")


class Load(threading.Thread):
    """fio in runs of ten seconds, until stopped: p50 and p99 in milliseconds and requests a second of each."""

    def __init__(self, uri, size):
        super().__init__()
        self.uri, self.size, self.going, self.runs = uri, size, True, []

    def run(self):
        while self.going:
            begun = time.monotonic()
            random_writes = ["--rw=randwrite", "--bs=4k", "--iodepth=8", "--time_based", f"--runtime={CHUNK_S}"]
            write = fio(self.uri, self.size, *random_writes, "--norandommap", "--randrepeat=0")
            percentiles = write["clat_ns"]["percentile"]
            p50, p99 = (percentiles[name] / 1e6 for name in ("50.000000", "99.000000"))
            self.runs.append((begun, p50, p99, write["iops"]))

    def stop(self):
        self.going = False
        self.join()
        return self.runs


def summary(runs):
    """The medians over runs: p50, p99, requests a second."""
    if not runs:
        return [float("nan")] * 3
    return [sorted(values)[len(values) // 2] for values in list(zip(*runs, strict=True))[1:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="2GiB", help="size of the volume, all of which is resynced")
    parser.add_argument("--quiet", type=int, default=60, help="seconds without a resync")
    parser.add_argument("--longest", type=int, default=600, help="seconds after which the resync is not waited for")
    parser.add_argument("--record", action="store_true", help="put the figures into docs/reliability.md")
    arguments = parser.parse_args()
    folder = new_folder()
    cluster = Cluster(folder, device_size="12GiB")
    try:
        rows, ratio = measure(cluster, arguments)
    finally:
        cluster.destroy()
        shutil.rmtree(folder, ignore_errors=True)
    print(rows)
    if arguments.record:
        replace_part(RELIABILITY, "beside", rows)
        set_figures(RELIABILITY, {"beside": f"{ratio:.2f}"})


def measure(cluster, arguments):
    cluster.start()
    cluster.create_volume(size=arguments.size, copies=3)
    fio_size = arguments.size.removesuffix("iB")
    fill(cluster, fio_size, 1)
    away = cluster.nodes[2]
    away.kill()
    fill(cluster, fio_size, 2)
    load = Load(cluster.first.uri(), fio_size)
    load.start()
    time.sleep(arguments.quiet + CHUNK_S)
    alone_until = time.monotonic()
    away.start()
    begun = time.monotonic()
    sent = 0

    def healthy():
        nonlocal sent
        status = json.loads(run_cli("status", "--json", api=cluster.first.api).stdout or "{}")
        sent = max(sent, (status.get("resync") or {}).get("bytes", 0))
        return status.get("healthy", False)

    done = True
    try:
        wait_until(healthy, arguments.longest, "the end of the resync")
    except TimeoutError:
        done = False
    ended = time.monotonic()
    runs = load.stop()
    alone = [run for run in runs[1:] if run[0] + CHUNK_S <= alone_until]
    beside = [run for run in runs if run[0] >= begun and run[0] + CHUNK_S <= ended]
    after = [run for run in runs if run[0] >= ended]
    text = (
        circumstances(3)
        + "\n\n| Writes of fio | Runs of 10 s | p50, ms | p99, ms | Requests a second |\n|---|---:|---:|---:|---:|\n"
    )
    for name, chosen in (
        ("alone, two copies", alone),
        ("beside the resync", beside),
        ("afterwards, three copies", after),
    ):
        if chosen:
            p50, p99, rate = summary(chosen)
            text += f"| {name} | {len(chosen)} | {p50:.2f} | {p99:.2f} | {rate:.0f} |\n"
    took = ended - begun
    megabytes = int(fio_size.rstrip("G")) * 1024
    outcome = f"took {took:.0f} s: {megabytes / took:.1f} MiB/s" if done else f"was not done after {took:.0f} s"
    ratio = summary(beside)[1] / summary(alone)[1]
    text += f"\nThe resync of {arguments.size} {outcome}. p99 is {ratio:.2f} times what it was alone."
    return text, ratio


if __name__ == "__main__":
    main()
