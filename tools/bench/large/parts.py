"""What is measured: each function starts the cluster that it is given and returns its values and its phases.

Values are those of figures.GOALS by name; a part that can't be measured on this machine gives a reason instead.
"""

import statistics

from .. import fio
from ..sizes import parse_size
from ..targets import VOLUME
from .rig import COPIES, MIB, NODES, Job

GIB = 2**30
WRITES, READS = "--rw=randwrite --bs=4k --iodepth=128", "--rw=randread --bs=4k --iodepth=128"
FREELY = "--norandommap=1"

# One block in each 128 KiB: 6.25 GiB of data, of which no chunk is without a part.
THIN, THIN_SIZE = "thin", "200G"
# Volumes may promise so many times the devices' size; by default that is less than this one.
OVERCOMMIT = 100
THIN_WRITES = f"{WRITES} --ba=128k {FREELY}"

# The share of the devices that dense data may fill, the data from which memory in leaves is told, and how many times
# what is held the data has.
DENSE_SHARE, DENSE_SAMPLE, DENSE_TIMES = 0.7, "64M", 10
DENSE = "dense"
# The least that a node takes for one device: ten times what it holds fits on devices of 17 GiB.
DENSE_MEMORY = "2M"
# Of what the cache holds: the range that is sure to lie within it.
INSIDE_SHARE = 0.5

ORDERED, SCATTERED = "ordered", "scattered"
SEQUENTIAL_READS = "--rw=read --bs=4M --iodepth=16"


def thin(rig, names):
    """Random writes to 2 GiB, to a thin volume of 200 GiB, to 2 GiB again, and to both at once; then a restart."""
    memory = rig.limit_memory()
    rig.start()
    rig.fill(VOLUME, rig.small)
    rig.age()
    small, large = Job(VOLUME, rig.small, f"{WRITES} {FREELY}"), Job(THIN, THIN_SIZE, THIN_WRITES)
    secs, minutes = rig.options.secs, rig.options.minutes
    before = rig.phase("small", [small], secs)
    rig.cluster.cli("class", "create", THIN, "--copies", COPIES, "--overcommit", OVERCOMMIT)
    rig.cluster.cli("volume", "create", THIN, THIN_SIZE + "iB", "--class", THIN)
    rig.cluster.wait_healthy()
    thin = rig.phase("thin", [large], int(minutes * 60))
    after = rig.phase("small again", [small], secs)
    beside = rig.phase("small beside thin", [small, large], secs)
    values = {
        "large_rate": thin.rate / before.rate,
        "large_last_minute": thin.last_minute / before.rate,
        "large_p99": thin.p99_us / before.p99_us,
        "large_afterwards": after.rate / before.rate,
        "large_beside": beside.rate / before.rate,
        "large_map_bytes": thin.map_bytes,
    }
    found = {"values": values, "phases": [vars(phase) for phase in (before, thin, after, beside)], "memory": memory}
    if "large_restart" in names:
        found |= restart(rig, values)
    return found


def restart(rig, values):
    """A node is killed as soon as the last write is answered, and started when the others have noticed."""
    node = rig.cluster.nodes[1]
    replay, map_bytes = rig.metric_of(node, "device_replay_bytes"), rig.map_bytes(node)
    opened_s, values["large_restart"] = rig.restart(node)
    rig.progress(f"{node.name}: {values['large_restart']:.2f} s until the cluster is healthy")
    return {
        "restart": {"map_mib": map_bytes / MIB, "replay_mib": replay / MIB, "opened_s": opened_s},
    }


def dense(rig, names):
    """Random writes and reads over ten times the data whose map fits in memory, and inside of it."""
    memory = rig.limit_memory(DENSE_MEMORY)
    rig.start()
    rig.cluster.delete_volume(VOLUME)
    room = int(NODES * rig.device_bytes * DENSE_SHARE / COPIES) // MIB * MIB
    rig.cluster.create_volume(DENSE, f"{room // MIB}MiB")
    rig.fill(DENSE, DENSE_SAMPLE)
    leaf_share = rig.metric("device_leaf_bytes") / parse_size(DENSE_SAMPLE)
    rig.fill(DENSE, f"{room // MIB}M")
    held = rig.metric("device_leaf_bytes") / leaf_share
    what = f"--memory {memory}" if memory else "this build's map cache (no option makes it smaller)"
    if held * DENSE_TIMES > room:
        return {
            "reason": f"dense data: not measured, {what} holds the map of {held / GIB:.1f} GiB of data or more; "
            f"ten times that does not fit in {room / GIB:.1f} GiB"
        }
    over, inside = held * DENSE_TIMES, held * INSIDE_SHARE
    rig.progress(f"{what} holds the map of {held / GIB:.2f} GiB of data")
    rates = {}
    for kind, test in (("write", WRITES), ("read", READS)):
        # The range's leaves are loaded before it is measured; the large one comes as it is.
        rig.fio([Job(DENSE, f"{inside // MIB:.0f}M", "--rw=read --bs=128k --iodepth=16")])
        for name, size in (("inside", inside), ("over", over)):
            job = Job(DENSE, f"{size // MIB:.0f}M", f"{test} {FREELY}")
            rates[f"{kind} {name}"] = rate = fio.measure(rig.fio([job], rig.options.secs)[0]).iops
            rig.progress(f"random {kind}s over {size / GIB:.2f} GiB: {rate:,.0f} a second")
    values = {f"large_dense_{kind}": rates[f"{kind} over"] / rates[f"{kind} inside"] for kind in ("write", "read")}
    sizes = {"inside_gib": inside / GIB, "over_gib": over / GIB, "held_gib": held / GIB}
    return {"values": values, "rates": rates, "memory": memory, "resident_mib": rig.resident_mib(), **sizes}


def sequential(rig, names):
    """Large reads of a volume that was written in order, and of one of which then every block was written again."""
    memory = rig.limit_memory()
    rig.start()
    rig.cluster.delete_volume(VOLUME)
    for volume in (ORDERED, SCATTERED):
        rig.cluster.create_volume(volume, rig.small + "iB")
        rig.fill(volume, rig.small)
    rig.progress(f"{SCATTERED}: writing every block again, in random order")
    # With fio's map of what it has written: each block once.
    rig.fio([Job(SCATTERED, rig.small, WRITES)])
    # What the first read of a block finds scattered is put together, for those that follow.
    once = {}
    for volume in (ORDERED, SCATTERED):
        once[volume] = fio.measure(rig.fio([Job(volume, rig.small, SEQUENTIAL_READS)])[0]).mib_s
        rig.progress(f"{volume}: {once[volume]:,.0f} MiB/s for the first time")
    rates = {ORDERED: [], SCATTERED: []}
    for turn in ((ORDERED, SCATTERED), (SCATTERED, ORDERED)):
        for volume in turn:
            report = rig.fio([Job(volume, rig.small, SEQUENTIAL_READS)], rig.options.secs)[0]
            rates[volume].append(fio.measure(report).mib_s)
            rig.progress(f"{volume}: {rates[volume][-1]:,.0f} MiB/s")
    means = {volume: statistics.mean(found) for volume, found in rates.items()}
    ratio = {name: found[SCATTERED] / found[ORDERED] for name, found in (("first", once), ("then", means))}
    values = {"large_sequential": ratio["then"], "large_first_read": ratio["first"]}
    return {"values": values, "rates": means, "memory": memory}
