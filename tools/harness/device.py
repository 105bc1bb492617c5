"""A device's log file seen from outside: finding the copies of a block in it, and damaging them."""

import json
import struct
from pathlib import Path

BLOCK = 4096
SEGMENT_BYTES = 32 * 2**20
WINDOW = 8 * 2**20
PREFIX = 64


def log_files(node):
    """The log files of a node's devices."""
    found = sorted(Path(node.data).glob("device-*/log"))
    assert found, f"{node.name} has no device-*/log in {node.data}"
    return found


def is_initialised(node):
    """Whether the logs of a node's devices have been written with zeros once, as new ones are in the background."""
    files = [json.loads(path.read_text()) for path in Path(node.data).glob("device-*/device.json")]
    assert files, f"{node.name} has no device-*/device.json in {node.data}"
    # One segment's room is the superblocks'.
    return all(file["segments_ready"] >= file["size"] // SEGMENT_BYTES - 1 for file in files)


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


SEGMENT_0 = 256
SEGMENT_BLOCKS = 8192
ENTRIES_AT = 112
ENTRY_SIZE = 64
KINDS_WITH_PAYLOAD = (1, 3, 5, 9, 14)


def _crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC32C = _crc32c_table()


def crc32c(data):
    """The Castagnoli CRC of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC32C[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


class _Batch:
    """A batch of the log (docs/formats/log.md), whose header can be changed."""

    def __init__(self, file, block):
        self.file, self.block = file, block
        file.seek(block * BLOCK)
        head = file.read(BLOCK)
        self.is_one = head[:8] == b"AZKBATCH"
        if self.is_one:
            self.headers, self.payloads, self.entries = struct.unpack_from("<III", head, 88)
            (self.sequence,) = struct.unpack_from("<Q", head, 56)
            self.header = bytearray(head + file.read((self.headers - 1) * BLOCK))

    @property
    def end(self):
        return self.block + self.headers + self.payloads

    def checksum_place(self, payload_block):
        """Where in the header the checksum of a block of the payload is."""
        at, payload = ENTRIES_AT, self.block + self.headers
        for _ in range(self.entries):
            kind = self.header[at]
            (count,) = struct.unpack_from("<H", self.header, at + 2)
            (note,) = struct.unpack_from("<H", self.header, at + 62)
            at += ENTRY_SIZE
            if kind in KINDS_WITH_PAYLOAD:
                if payload <= payload_block < payload + count:
                    return at + 4 * (payload_block - payload)
                payload += count
                at += 4 * count
            at += -(-note // 4) * 4
        raise AssertionError(f"no entry of the batch at {self.block} has block {payload_block}")

    def write(self, previous=None):
        """Writes the header with its checksum, which is returned."""
        if previous is not None:
            struct.pack_into("<I", self.header, 36, previous)
        struct.pack_into("<I", self.header, 12, 0)
        crc = crc32c(self.header)
        struct.pack_into("<I", self.header, 12, crc)
        self.file.seek(self.block * BLOCK)
        self.file.write(self.header)
        return crc


def forge_block(path, offset, content):
    """Gives a block in a log other contents, as if these had been written: no checksum tells.

    The map must not have been saved since the block was written: it has a checksum, too.
    """
    number = offset // BLOCK
    with open(path, "r+b") as file:
        segment = (number - SEGMENT_0) // SEGMENT_BLOCKS
        batch = _Batch(file, SEGMENT_0 + segment * SEGMENT_BLOCKS)
        while batch.is_one and batch.end <= number:
            batch = _Batch(file, batch.end)
        assert batch.is_one, f"no batch of {path} holds block {number}"
        struct.pack_into("<I", batch.header, batch.checksum_place(number), crc32c(content))
        file.seek(offset)
        file.write(content)
        crc = batch.write()
        # Each batch names the checksum of the one before.
        following = _Batch(file, batch.end)
        while following.is_one and following.sequence == batch.sequence + 1:
            crc = following.write(previous=crc)
            batch, following = following, _Batch(file, following.end)
