"""The nine tests, in the order in which they run, and what Azekura is to reach in each."""

from dataclasses import dataclass

# Every test runs with these; only the engine's own arguments differ between targets.
COMMON = ["--name=t", "--direct=1", "--randrepeat=0", "--group_reporting", "--output-format=json"]
FILL = ["--rw=write", "--bs=1M", "--iodepth=8"]
# Once before the first test. Behind a virtual disk lies a cache, which has lost what was filled first.
READ_ONCE = ["--rw=read", "--bs=1M", "--iodepth=8"]


@dataclass(frozen=True)
class Test:
    """One fio test. `goal` is the wanted ratio to qemu-nbd's rate (None: shown, not judged)."""

    name: str
    arguments: tuple
    unit: str
    goal: float | None


def _test(name, arguments, unit="IOPS", goal=None):
    return Test(name, tuple(arguments.split()), unit, goal)


TESTS = [
    _test("randwrite_fsync", "--rw=randwrite --bs=4k --numjobs=1 --iodepth=1 --fsync=1", goal=0.9),
    _test("randwrite_q128x4", "--rw=randwrite --bs=4k --numjobs=4 --iodepth=128"),
    _test("randwrite_q128", "--rw=randwrite --bs=4k --numjobs=1 --iodepth=128", goal=1.0),
    _test("write_4M", "--rw=write --bs=4M --numjobs=1 --iodepth=16", unit="MiB/s", goal=0.8),
    _test("randread_q1", "--rw=randread --bs=4k --numjobs=1 --iodepth=1", goal=0.9),
    _test("randread_q128x4", "--rw=randread --bs=4k --numjobs=4 --iodepth=128"),
    _test("randread_q128", "--rw=randread --bs=4k --numjobs=1 --iodepth=128", goal=0.9),
    _test("read_4M", "--rw=read --bs=4M --numjobs=1 --iodepth=16", unit="MiB/s", goal=1.0),
    _test("rw75_q64", "--rw=randrw --rwmixread=75 --bs=4k --numjobs=1 --iodepth=64", goal=0.8),
]

# Limits beside the ratios.
CPU_US_PER_WRITE_MAX = 25.0
RESIDENT_MIB_PER_NODE_MAX = 150.0
IDLE_CORE_SHARE_MAX = 0.01
SUSTAINED_RATIO_MIN = 0.6
# With a thousand snapshots, or one every ten seconds, beside none.
SNAPSHOTS_RATIO_MIN = 0.95
# With a volume of the same gateway whose only copies are away, beside none.
STUCK_RATIO_MIN = 0.9
# Of a volume whose map is large, beside a range of 2 GiB.
LARGE_RATE_MIN = 0.7
LARGE_P99_MAX = 3.0
LARGE_AFTERWARDS_MIN = 0.97
# Written to the map for each block on each of its copies.
LARGE_MAP_BYTES_MAX = 1024
LARGE_RESTART_S_MAX = 10.0
# Over ten times the data whose map is held in memory, beside a range inside of it.
LARGE_DENSE_MIN = 0.6
LARGE_SEQUENTIAL_MIN = 0.5
# Of a request under a load that one shard can bear, on four shards beside one.
SHARDS_CPU_MAX = 1.1
# Of a node with fifty devices, beside one with three.
DEVICES_RATE_MIN = 0.9
# Of TLS between the nodes, beside none: CPU of a replicated 4 KiB write, rate of 4 MiB writes.
TLS_CPU_MAX = 1.25
TLS_RATE_MIN = 0.8
# Of the doors beside their peers: rates of iSCSI and vhost-user, CPU of a request over NVMe/TCP beside one over NBD.
DOORS_ISCSI_Q128_MIN = 1.5
DOORS_ISCSI_Q1_MIN = 1.0
DOORS_VHOST_MIN = 1.0
DOORS_CPU_MAX = 1.1
# Of an encrypted volume beside one that is not, in each of four tests.
ENCRYPTED_CPU_MAX = 1.15
ENCRYPTED_RATE_MIN = 0.9
