"""A volume that is at home where it is attached, beside one whose copies are anywhere, and beside qemu-nbd."""

from . import fio
from .measure import run_test
from .plan import FILL, READ_ONCE, TESTS
from .report import beside, rate_of, yes
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
    lines = ["| beside | test | rate | least to most | CPU a request |", "|---|---|---:|---:|---:|"]
    names = {"azekura": "copies anywhere", "qemu-nbd": "qemu-nbd, no copies"}
    for peer, table in tables.items():
        for line in table:
            spread = f"{line['least']:.2f} to {line['most']:.2f}"
            lines.append(f"| {names[peer]} | {line['test']} | {line['rate']:.2f} | {spread} | {line['cpu']:.2f} |")
    return "\n".join(lines)


def run(options, folder, progress):
    # One that is larger than half of the first node's devices would not be at home there.
    size = parse_size(options.size)
    targets = [cls.asked_for(folder, options, size) for cls in (Attached, Azekura)] + [QemuNbd(folder, size)]
    runs = []
    try:
        for target in targets:
            progress(f"{target.name}: starting and filling {options.size}")
            target.start()
            for test in (FILL, READ_ONCE):
                fio.run(fio.command(target.engine(), options.size, test), folder=folder)
        for number in range(options.rounds):
            for place, test in enumerate(tests()):
                for target in targets if (number + place) % 2 == 0 else reversed(targets):
                    runs.append(run_test(target, test, options, folder))
                    rate = rate_of(test, runs[-1])
                    progress(f"{test.name:18} {target.name:10} {rate:10,.0f} {runs[-1].server_cpu_us:8.1f} µs")
    finally:
        for target in targets:
            target.stop()
    tables = {peer: beside(tests(), runs, (Attached.name, peer)) for peer in PEERS}
    table = markdown(tables)
    print(table)
    return {"markdown": table, "figures": figures(tables), "ratios": tables}
