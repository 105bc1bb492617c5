"""What a node uses when nobody asks anything of it, and its memory with 10 GiB of data behind it."""

import time

from . import fio
from .plan import FILL, IDLE_CORE_SHARE_MAX, RESIDENT_MIB_PER_NODE_MAX
from .report import yes
from .targets import Azekura

DATA = "10G"
SETTLE_S = 15
WATCH_S = 20
MIB = 2**20


def run(options, folder, progress):
    target = Azekura.asked_for(folder, options, options.volume_size)
    try:
        progress(f"azekura: writing {DATA}")
        target.start()
        fio.run(fio.command(target.engine(), DATA, FILL), 3600, folder)
        progress(f"resting {SETTLE_S} s, then watching for {WATCH_S} s")
        time.sleep(SETTLE_S)
        before = [process.cpu_seconds() for process in target.processes()]
        began = time.monotonic()
        time.sleep(WATCH_S)
        seconds = time.monotonic() - began
        shares = [(process.cpu_seconds() - cpu) / seconds for process, cpu in zip(target.processes(), before)]
        resident = [value / MIB for value in target.resident_bytes()]
    finally:
        target.stop()
    for number, (share, mib) in enumerate(zip(shares, resident), 1):
        print(f"n{number}: {share * 100:.2f} % of a core, {mib:.0f} MiB resident")
    idle, small = max(shares) < IDLE_CORE_SHARE_MAX, max(resident) <= RESIDENT_MIB_PER_NODE_MAX
    print(f"idle node under {IDLE_CORE_SHARE_MAX:.0%} of a core: {'yes' if idle else 'no'}")
    print(f"at most {RESIDENT_MIB_PER_NODE_MAX:g} MiB a node with {DATA} written: {'yes' if small else 'no'}")
    lines = ["| node | share of a core | resident |", "|---|---:|---:|"]
    for number, (share, mib) in enumerate(zip(shares, resident), 1):
        lines.append(f"| n{number} | {share * 100:.2f} % | {mib:.0f} MiB |")
    return {
        "markdown": "\n".join(lines),
        "figures": {
            "idle": f"{max(shares) * 100:.2f} %: {yes(idle)}",
            "idle_memory": f"{max(resident):.0f} MiB: {yes(small)}",
        },
        "core_share": shares,
        "resident_mib": resident,
        "idle_reached": idle,
        "resident_reached": small,
    }
