"""Clients that work on while things break: writers with a ledger, register clients. They reconnect, as others do."""

import random
import threading
import time

from tools.harness.acked_writer import BLOCK, content, identify
from tools.harness.nbd import CMD_READ, CMD_WRITE, Client, NbdError

from .registers import Operation

# Long enough for every pause that is allowed; an answer that takes longer counts as a hang.
ANSWER_WITHIN_S = 90
RECONNECT_EVERY_S = 0.05


class Workload(threading.Thread):
    """A client with one connection at a time, to the first of `uris` that answers; progress and pauses are noted."""

    def __init__(self, name, uris, seed, rate):
        super().__init__(daemon=True, name=name)
        self.uris, self.rate = list(uris), rate
        self.random = random.Random(seed)
        self.wanted = True
        self.done = 0
        self.reconnects = 0
        self.faults = []
        self.io_errors = []
        self.crash = None
        self.pause = 0.0
        self.in_flight = {}

    def asking(self):
        """What waits for an answer, and where: for the message about a hang."""
        now = time.monotonic()
        requests = [f"{what} for {now - sent:.1f} s" for what, sent in list(self.in_flight.values())]
        return f"through {self.uris[0]}: {', '.join(requests)}"

    def take_pause(self):
        """The longest that a request took since this was asked last, reconnecting included, in seconds."""
        worst, self.pause = self.pause, 0.0
        return worst

    def run(self):
        # A request that was cut off counts from its sending to the first answer on the next connection.
        self.cut_off_since = None
        while self.wanted:
            try:
                with Client(self.uris[0], ANSWER_WITHIN_S) as client:
                    self.talk(client)
            except TimeoutError:
                self.faults.append(f"no answer within {ANSWER_WITHIN_S} s from {self.uris[0]}")
            except OSError:
                pass
            except Exception as error:  # noqa: BLE001 - a thread's last words, shown at the end
                self.crash = error
                return
            if self.wanted:
                self.reconnects += 1
                self.uris.append(self.uris.pop(0))
                time.sleep(RECONNECT_EVERY_S)

    def answered(self, sent):
        now = time.monotonic()
        since = min(sent, self.cut_off_since or sent)
        self.cut_off_since = None
        self.pause = max(self.pause, now - since)
        self.done += 1
        return now

    def was_cut_off(self, sent):
        self.cut_off_since = min(sent, self.cut_off_since or sent)

    def pace(self, began):
        """Waits as long as the wished rate asks for, counted from the request's beginning."""
        left = began + 1 / self.rate - time.monotonic()
        if left > 0:
            time.sleep(left)

    def finish(self, within_s=120):
        self.wanted = False
        self.join(within_s)
        if self.is_alive():
            self.faults.append(f"{self.name} hangs after {self.done} requests")
        if self.crash is not None:
            raise self.crash


class LedgerClient(Workload):
    """Writes and reads random blocks, each of which is its own, and judges every read at once."""

    def __init__(self, name, uris, ledger, seed, depth=4, rate=200, read_share=0.25):
        super().__init__(name, uris, seed, rate)
        self.ledger, self.depth, self.read_share = ledger, depth, read_share

    def talk(self, client):
        in_flight = {}
        self.in_flight = {}
        busy = set()
        try:
            while self.wanted or in_flight:
                began = time.monotonic()
                while self.wanted and len(in_flight) < self.depth:
                    block = self.random.choice(self.ledger.blocks)
                    if block not in busy:
                        busy.add(block)
                        self._send(client, block, in_flight)
                cookie, error, data = client.receive()
                block, version, sent = in_flight.pop(cookie)
                self.in_flight.pop(cookie, None)
                busy.remove(block)
                self.answered(sent)
                self._judge(block, version, error, data)
                self.pace(began)
        except OSError:
            if in_flight:
                self.was_cut_off(min(sent for _, _, sent in in_flight.values()))
            raise

    def _send(self, client, block, in_flight):
        sent = time.monotonic()
        if self.random.random() < self.read_share:
            cookie, version = client.next_cookie, None
            in_flight[cookie] = (block, version, sent)
            self.in_flight[cookie] = (f"read of block {block}", sent)
            client.send(CMD_READ, block * BLOCK, BLOCK)
        else:
            # Noted before it is sent: a write that was sent may happen, acknowledged or not.
            version = self.ledger.attempt(block)
            in_flight[client.next_cookie] = (block, version, sent)
            self.in_flight[client.next_cookie] = (f"write of block {block}", sent)
            client.send(CMD_WRITE, block * BLOCK, data=content(block, version))

    def _judge(self, block, version, error, data):
        if error:
            what = "read" if version is None else "write"
            self.io_errors.append(f"{self.name}: {what} of block {block} at {time.time():.3f}: error {error}")
        elif version is not None:
            self.ledger.acknowledge(block, version)
        else:
            fault = self.ledger.check_block(block, data)
            if fault:
                self.faults.append(f"{time.time():.3f} read by {self.name} through {self.uris[0]}: {fault}")


class RegisterClient(Workload):
    """Reads and writes the same few blocks as its fellows, one request at a time, and keeps the history."""

    def __init__(self, name, number, uris, blocks, seed, rate=60):
        super().__init__(name, uris, seed, rate)
        self.number, self.blocks = number, blocks
        self.history = []
        self.writes = 0

    def talk(self, client):
        while self.wanted:
            began = time.monotonic()
            block = self.random.choice(self.blocks)
            try:
                if self.random.random() < 0.5:
                    self.in_flight = {0: (f"write of block {block}", began)}
                    self._write(client, block)
                else:
                    self.in_flight = {0: (f"read of block {block}", began)}
                    self._read(client, block)
            except NbdError as error:
                self.io_errors.append(f"{self.name}: block {block} at {time.time():.3f}: {error}")
                continue
            except OSError:
                self.was_cut_off(began)
                raise
            self.answered(began)
            self.pace(began)

    def _write(self, client, block):
        self.writes += 1
        value = (self.number << 32) + self.writes
        operation = Operation("write", value, time.monotonic(), client=f"{self.name} {self.uris[0]}")
        self.history.append((block, operation))
        client.write(block * BLOCK, content(block, value))
        operation.end = time.monotonic()

    def _read(self, client, block):
        start = time.monotonic()
        data = client.read(block * BLOCK, BLOCK)
        end = time.monotonic()
        value = identify(block, data)
        if value is None:
            self.faults.append(
                f"{time.time():.3f} {self.name}: block {block} holds no version of it: {data[:32].hex()}"
            )
        else:
            self.history.append((block, Operation("read", value, start, end, f"{self.name} {self.uris[0]}")))


def histories(clients):
    """Block → the operations of all clients on it."""
    merged = {}
    for client in clients:
        for block, operation in client.history:
            merged.setdefault(block, []).append(operation)
    return merged
