"""A writer that knows what it was promised, and the check of what is there afterwards.

Each write fills one block with its own version number. The writer notes for every block the last version that the
server acknowledged and all later versions that it tried to write. After any crash a block must hold the acknowledged
version or one of the later tries: an older one is a lost write, anything else is corruption. Once the check has seen
a later try, that version counts as acknowledged: what was readable must not vanish again.
"""

import random
import struct
import threading
import time

from .nbd import CMD_READ, CMD_WRITE, Client, NbdError
from .process import wait_until

BLOCK = 4096
# Reads that a check has under way.
READS_AHEAD = 32
_HEAD = struct.Struct("<QQQ")
_MARK = 0x415A454B55524121


def content(block, version):
    """The bytes of one version of one block: its name, then a pattern that differs everywhere."""
    if version == 0:
        return bytes(BLOCK)
    filler = random.Random(block * 1_000_003 + version).randbytes(64)
    body = _HEAD.pack(_MARK, block, version)
    return body + (filler * (BLOCK // len(filler)))[: BLOCK - len(body)]


def identify(block, data):
    """The version that `data` is of `block`, or None when it is none at all (torn, misplaced, damaged)."""
    if data == bytes(BLOCK):
        return 0
    mark, named, version = _HEAD.unpack_from(data)
    if mark != _MARK or named != block or data != content(block, version):
        return None
    return version


class Ledger:
    """What was promised about each block. Versions only grow.

    With a stride the blocks lie apart, so that few of them are in as many chunks and groups as the volume has: a test
    that breaks one device or node needs that, or nothing may have been written there.
    """

    def __init__(self, blocks, first_block=0, stride=1):
        self.blocks = range(first_block, first_block + blocks * stride, stride)
        self.acked = dict.fromkeys(self.blocks, 0)
        self.tried = {block: [] for block in self.blocks}
        self.version = 0
        self.acks = 0

    def attempt(self, block):
        self.version += 1
        self.tried[block].append(self.version)
        return self.version

    def acknowledge(self, block, version):
        self.acks += 1
        self._settle(block, version)

    def check_block(self, block, data):
        """Judges one block's bytes; the fault as text, or None."""
        version = identify(block, data)
        allowed = [self.acked[block], *self.tried[block]]
        if version is None:
            return f"block {block}: no version of it (starts {data[:32].hex()}), allowed: {allowed}"
        if version not in allowed:
            return f"block {block}: version {version}, allowed: {allowed}"
        self._settle(block, version)
        return None

    def _settle(self, block, version):
        """What the server promised or showed cannot be undone; tries after it may still come about."""
        self.acked[block] = version
        self.tried[block] = [later for later in self.tried[block] if later > version]

    def check(self, uri):
        """Reads every block and returns all faults."""
        faults, asked = [], {}
        with Client(uri) as client:
            left = iter(self.blocks)
            while True:
                while len(asked) < READS_AHEAD and (block := next(left, None)) is not None:
                    asked[client.send(CMD_READ, block * BLOCK, BLOCK)] = block
                if not asked:
                    return faults
                cookie, error, data = client.receive()
                block = asked.pop(cookie)
                fault = f"read of block {block}: error {error}" if error else self.check_block(block, data)
                if fault:
                    faults.append(fault)


class Writer(threading.Thread):
    """Writes random blocks, `depth` at a time and never two at once to one block, until stopped or cut off."""

    def __init__(self, uri, ledger, depth=16, seed=1, timeout_s=120):
        super().__init__(daemon=True)
        self.uri, self.ledger, self.depth, self.timeout_s = uri, ledger, depth, timeout_s
        self.random = random.Random(seed)
        self.wanted = True
        self.acks = 0
        # The longest time that a write has taken since somebody set this to 0.
        self.longest_s = 0.0
        self.error = None

    def run(self):
        try:
            with Client(self.uri, self.timeout_s) as client:
                self._write(client)
        except (OSError, NbdError) as error:
            self.error = error

    def _write(self, client):
        in_flight = {}
        busy = set()
        while self.wanted or in_flight:
            while self.wanted and len(in_flight) < self.depth:
                block = self.random.choice(self.ledger.blocks)
                if block in busy:
                    continue
                # Noted before it is sent: a write that was sent may happen, acknowledged or not.
                version = self.ledger.attempt(block)
                cookie = client.send(CMD_WRITE, block * BLOCK, data=content(block, version))
                in_flight[cookie] = (block, version, time.monotonic())
                busy.add(block)
            cookie, error, _ = client.receive()
            block, version, sent = in_flight.pop(cookie)
            self.longest_s = max(self.longest_s, time.monotonic() - sent)
            if error:
                raise NbdError(f"write of block {block}", error)
            self.ledger.acknowledge(block, version)
            busy.remove(block)
            self.acks += 1

    def go_on(self, count=300, within_s=180):
        """Waits until so many more writes are acknowledged."""
        goal = self.acks + count
        wait_until(lambda: self.acks >= goal or not self.is_alive(), within_s, f"{count} more acknowledged writes")
        assert self.acks >= goal, self.error

    def finish(self, within_s=180):
        """Lets the writes in flight end, and raises what stopped the writer, if something did."""
        self.wanted = False
        self.join(within_s)
        assert not self.is_alive(), f"the writer hangs after {self.acks} acknowledged writes"
        if self.error is not None:
            raise self.error

    def join_cut_off(self, within_s=180):
        """For a writer whose server was killed: it must have noticed."""
        self.join(within_s)
        assert not self.is_alive(), "the writer did not notice that its server is gone"


def outlive(cluster, dead, ledger, seed):
    """Writes through a node that lives go on while `dead` die together, and none that was acknowledged is lost."""
    others = [node for node in cluster.nodes if node not in dead]
    writer = Writer(others[0].uri(), ledger, seed=seed)
    writer.start()
    writer.go_on()
    for node in dead:
        node.kill()
    writer.go_on(1000)
    writer.finish()
    for reader in others:
        faults = ledger.check(reader.uri())
        assert not faults, f"without {[node.name for node in dead]}, read through {reader.name}: {faults[:5]}"
    for node in dead:
        node.start()
    cluster.wait_healthy()
