"""Is a history of reads and writes of one register linearizable?

Every write has a value of its own, so the question is easy (Gibbons and Korach, "Testing shared memories", 1997): a
write and the reads of its value form a cluster. It must have been the register's value from the first end of one of
them to the last beginning of one of them, its zone: forward when it has a length. The history is linearizable exactly
when no value is read before its write begins, no two forward zones overlap, and no backward zone lies within a forward
one.
"""

import bisect
import math
from dataclasses import dataclass

INITIAL = 0


@dataclass
class Operation:
    """One request of a client; `end` is infinite when its answer never came. Times are seconds of one clock."""

    kind: str
    value: int
    start: float
    end: float = math.inf
    client: str = ""


def faults(operations):
    """What is wrong with the history of one register, as texts; empty when it is linearizable."""
    writes = {INITIAL: Operation("write", INITIAL, -math.inf, -math.inf)}
    reads = {}
    for operation in operations:
        if operation.kind == "write":
            assert operation.value not in writes, f"value {operation.value} is written twice"
            writes[operation.value] = operation
        elif operation.end < math.inf:
            reads.setdefault(operation.value, []).append(operation)
    found, zones = [], []
    for value, readers in reads.items():
        write = writes.get(value)
        if write is None:
            found.append(f"{readers[0]}: nobody wrote that")
        else:
            found += [f"{read} ends before {write} begins" for read in readers if read.end < write.start]
    for value, write in writes.items():
        cluster = [write, *reads.get(value, [])]
        if write.end == math.inf and len(cluster) == 1:
            # Unanswered and never seen: it may come about after everything else.
            continue
        zones.append((min(each.end for each in cluster), max(each.start for each in cluster), value))
    forward = sorted(zone for zone in zones if zone[0] < zone[1])
    for first, second in zip(forward, forward[1:]):
        if second[0] < first[1]:
            found.append(
                f"the values {first[2]} and {second[2]} would both be there at {second[0]:.6f}: {first} {second}"
            )
    for end, start, value in zones:
        if end < start or not forward:
            continue
        zone = forward[max(0, bisect.bisect_left(forward, (start,)) - 1)]
        if zone[0] < start and end < zone[1]:
            found.append(f"value {value} lies within the time of value {zone[2]}: {(start, end)} in {zone}")
    return found
