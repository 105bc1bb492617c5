"""Clients that go on whatever becomes of their nodes: over NBD, iSCSI and NVMe/TCP, with a ledger of what was promised.

Each has one connection to one node, and goes to the next node when that breaks. What was unanswered then is sent again
as it was: the same version of the same block. An error as the answer to a read or a write is a fault, and so is a block
that holds something else than the ledger allows.
"""

import random
import threading
import time

from . import iscsi, nbd, nvme
from .acked_writer import BLOCK, content
from .process import wait_until

TARGET = "iqn.2026-01.io.azekura:"
SECTORS = BLOCK // 512
# Longer than any pause that is allowed: an answer that takes longer is a hang.
ANSWER_WITHIN_S = 90
RECONNECT_EVERY_S = 0.05
# NBD's word for a server that is about to end: what was asked is to be asked elsewhere.
ESHUTDOWN = 108


class ByNbd:
    """A connection to a volume over NBD, on the node's unix socket or its TCP port."""

    def __init__(self, node, volume, tcp=False):
        self.client = nbd.Client(node.uri(volume, tcp), ANSWER_WITHIN_S)

    def write(self, block, data):
        self._ask(lambda: self.client.write(block * BLOCK, data))

    def read(self, block):
        return self._ask(lambda: self.client.read(block * BLOCK, BLOCK))

    @staticmethod
    def _ask(request):
        try:
            return request()
        except nbd.NbdError as error:
            if error.code == ESHUTDOWN:
                raise ConnectionError("the server is about to end") from None
            raise

    def close(self):
        self.client.close()


class ByIscsi:
    """A session with a volume's target; the node has `iscsi`, its portal."""

    def __init__(self, node, volume):
        self.session = iscsi.Session(node.iscsi, TARGET + volume, name=f"iqn.2000-01.example:{volume}").log_in()
        self.session.attentions()
        self.session.socket.settimeout(ANSWER_WITHIN_S)

    def write(self, block, data):
        self.session.write(block * SECTORS, data)

    def read(self, block):
        return self.session.read(block * SECTORS, SECTORS)

    def close(self):
        self.session.socket.close()


class ByNvme:
    """An administrative queue and one for data; the node has `nvme`, its portal."""

    def __init__(self, node, volume):
        self.admin = nvme.controller(node.nvme, volume)
        try:
            self.queue = nvme.io_queue(node.nvme, volume, self.admin, 1)
        except BaseException:
            self.admin.close()
            raise
        self.queue.socket.settimeout(ANSWER_WITHIN_S)

    def write(self, block, data):
        self.queue.write(block * SECTORS, data)

    def read(self, block):
        return self.queue.read(block * SECTORS, BLOCK)

    def close(self):
        self.queue.close()
        self.admin.close()


class SteadyClient(threading.Thread):
    """Writes random blocks of a volume, one at a time, and reads in between, through the first of `nodes` that answers.

    `way`: one of the classes above, called with a node and the volume's name.
    """

    def __init__(self, way, volume, nodes, ledger, seed=1, rate=150):
        super().__init__(daemon=True, name=f"{getattr(way, '__name__', 'ByNbd')} of {volume}")
        self.way, self.volume, self.nodes, self.ledger = way, volume, list(nodes), ledger
        self.random, self.rate = random.Random(seed), rate
        self.wanted = True
        self.writes = self.reconnects = 0
        self.faults = []
        # Why the last connection ended, or could not be made, for messages.
        self.told = None
        # A write that was sent and not answered: block, version, when it was first sent.
        self.unanswered = None
        self.longest_s = 0.0

    def run(self):
        try:
            while self.wanted or self.unanswered:
                self._connect()
        except Exception as error:  # noqa: BLE001 - a thread's last words, which `check` shows
            self.faults.append(f"{self.name} through {self.nodes[0].name}: {type(error).__name__}: {error}")

    def _connect(self):
        node = self.nodes[0]
        try:
            connection = self.way(node, self.volume)
        except (OSError, iscsi.IscsiError, nvme.Failed, AssertionError) as error:
            # It does not run, or does not serve the volume yet.
            self._go_elsewhere(error)
            return
        try:
            while self.wanted or self.unanswered:
                self._once(connection)
        except TimeoutError as error:
            raise AssertionError(f"no answer within {ANSWER_WITHIN_S} s") from error
        except OSError as error:
            self._go_elsewhere(error)
        finally:
            connection.close()

    def _go_elsewhere(self, error):
        self.told = f"{self.nodes[0].name}: {error}"
        self.reconnects += 1
        self.nodes.append(self.nodes.pop(0))
        time.sleep(RECONNECT_EVERY_S)

    def _once(self, connection):
        began = time.monotonic()
        if self.unanswered is None:
            block = self.random.choice(self.ledger.blocks)
            self.unanswered = (block, self.ledger.attempt(block), began)
        block, version, sent = self.unanswered
        connection.write(block, content(block, version))
        self.ledger.acknowledge(block, version)
        self.unanswered = None
        self.longest_s = max(self.longest_s, time.monotonic() - sent)
        self.writes += 1
        if self.writes % 3 == 0:
            block = self.random.choice(self.ledger.blocks)
            fault = self.ledger.check_block(block, connection.read(block))
            assert not fault, fault
        time.sleep(max(0.0, began + 1 / self.rate - time.monotonic()))

    def take_longest_s(self):
        """The longest that a write took since this was asked last, reconnecting included, seconds."""
        longest, self.longest_s = self.longest_s, 0.0
        waiting = self.unanswered
        return max(longest, time.monotonic() - waiting[2]) if waiting else longest

    def check(self):
        """Raises what went wrong so far."""
        assert not self.faults, self.faults

    def go_on(self, count=30, within_s=120):
        """Waits until so many more writes are acknowledged."""
        goal = self.writes + count
        try:
            wait_until(lambda: self.writes >= goal or self.faults, within_s, f"{count} more writes of {self.name}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; last: {self.told}") from None
        self.check()

    def finish(self, within_s=120):
        """Lets what is unanswered end, and raises what went wrong."""
        self.wanted = False
        self.join(within_s)
        assert not self.is_alive(), f"{self.name} hangs after {self.writes} writes; last: {self.told}"
        self.check()
