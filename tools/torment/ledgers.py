"""A ledger whose blocks lie apart, so that few of them are in as many chunks and groups as the volume has."""

from tools.harness.acked_writer import BLOCK, Ledger
from tools.harness.nbd import CMD_READ, Client

READS_AHEAD = 32


class SpreadLedger(Ledger):
    """Every `stride`th block from `first_block` on."""

    def __init__(self, blocks, first_block, stride):
        super().__init__(0)
        self.blocks = range(first_block, first_block + blocks * stride, stride)
        self.acked = dict.fromkeys(self.blocks, 0)
        self.tried = {block: [] for block in self.blocks}

    def check(self, uri):
        """Reads every block and returns all faults."""
        faults, asked = [], {}
        with Client(uri, 60) as client:
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
