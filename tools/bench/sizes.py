"""Sizes as people write them."""

import re

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(text):
    """Bytes of "2G", "10GiB" or "4096"; binary units, as fio and azekura take them."""
    match = re.fullmatch(r"(\d+)([KMGT]?)(?:iB|B)?", text)
    if not match:
        raise ValueError(f"size {text!r}: write a number and K, M, G or T, as in 10GiB")
    return int(match[1]) * UNITS[match[2]]
