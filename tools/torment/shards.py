"""How many shards the nodes of a torment have: one number for all, or drawn for each from the seed."""

import argparse
import random

DRAW = "draw"
# What is drawn from: few, since all nodes share one machine's cores. The machine does not count, so that a seed says
# the same everywhere.
DRAWN_FROM = (1, 2)
# Each shard has a device, and a node's devices have its space together: with more of them each would be too small.
SHARDS_MAX = 4


def parse(text):
    """The value of `--shards`."""
    if text == DRAW:
        return DRAW
    if not text.isdecimal() or not 1 <= int(text) <= SHARDS_MAX:
        raise argparse.ArgumentTypeError(f"'{text}' is neither a number from 1 to {SHARDS_MAX} nor '{DRAW}'")
    return int(text)


def of_nodes(wanted, seed, nodes):
    """The shards of each of so many nodes. The draw is not that of the faults: their order stays what it is."""
    if wanted != DRAW:
        return [wanted] * nodes
    drawn = random.Random(f"shards of {seed}")
    return [drawn.choice(DRAWN_FROM) for _ in range(nodes)]


def described(shards):
    """For people: `2 on each node`, or `n1 1, n2 2`."""
    if len(set(shards)) == 1:
        return f"{shards[0]} on each node"
    return ", ".join(f"n{number} {count}" for number, count in enumerate(shards, 1))
