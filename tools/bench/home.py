"""A volume that is at home where it is attached, beside one whose copies are anywhere, and beside qemu-nbd."""

from . import turns
from .plan import TESTS
from .report import beside, yes
from .sizes import parse_size
from .targets import Attached, Azekura, QemuNbd

MEASURED = ("randwrite_fsync", "randread_q1", "randwrite_q128", "randread_q128", "read_4M")
# What a request at a time is to reach of qemu-nbd's rate without copies.
JUDGED = ("randwrite_fsync", "randread_q1")
PEERS = ("azekura", "qemu-nbd")


def tests():
    return [test for test in TESTS if test.name in MEASURED]


def figures(tables):
    """The cells of docs/performance.md. `tables`: the ratios to each of `PEERS`."""
    goals = {test.name: test.goal for test in TESTS}
    rates = {line["test"]: line["rate"] for line in tables["qemu-nbd"]}
    return {f"home_{test}": f"{rates[test]:.2f}: {yes(rates[test] >= goals[test])}" for test in JUDGED}


def markdown(tables):
    names = {"azekura": "copies anywhere", "qemu-nbd": "qemu-nbd, no copies"}
    return "\n".join(turns.table("beside", {names[peer]: table for peer, table in tables.items()}))


def run(options, folder, progress):
    # One that is larger than half of the first node's devices would not be at home there.
    size = parse_size(options.size)
    targets = [cls.asked_for(folder, options, size) for cls in (Attached, Azekura)] + [QemuNbd(folder, size)]
    try:
        for target in targets:
            turns.fill(target, options, folder, progress)
        runs = turns.take(targets, tests(), options, folder, progress)
    finally:
        for target in targets:
            target.stop()
    tables = {peer: beside(tests(), runs, (Attached.name, peer)) for peer in PEERS}
    table = markdown(tables)
    print(table)
    return {"markdown": table, "figures": figures(tables), "ratios": tables}
