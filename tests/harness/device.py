"""A device's log file seen from outside: finding the copies of a block in it, and damaging them."""

from pathlib import Path

BLOCK = 4096
WINDOW = 8 * 2**20
PREFIX = 64


def log_files(node):
    """The log files of a node's devices."""
    found = sorted(Path(node.data).glob("device-*/log"))
    assert found, f"{node.name} has no device-*/log in {node.data}"
    return found


def find_blocks(path, contents):
    """Number → offsets of the 4 KiB-aligned blocks of a file that start as `contents[number]` does; one pass."""
    numbers = {content[:PREFIX]: number for number, content in enumerate(contents)}
    found = {}
    with open(path, "rb") as file:
        base = 0
        while window := file.read(WINDOW):
            for start in range(0, len(window), BLOCK):
                number = numbers.get(window[start : start + PREFIX])
                if number is not None:
                    found.setdefault(number, []).append(base + start)
            base += len(window)
    return found


def flip_bit(path, offset, bit=0):
    """Turns one bit of a file around, as a failing device does, and says nothing to anybody."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ (1 << bit)]))
