"""A vhost-user client and driver of a virtio block device in a few lines: a memfd, split rings, eventfds."""

import fcntl
import mmap
import os
import select
import socket
import struct

GET_FEATURES, SET_FEATURES, SET_OWNER, SET_MEM_TABLE = 1, 2, 3, 5
SET_LOG, SET_CHANNEL = 6, 21
SET_NUM, SET_ADDR, SET_BASE, GET_BASE, SET_KICK, SET_CALL = 8, 9, 10, 11, 12, 13
GET_PROTOCOL, SET_PROTOCOL, GET_QUEUES, ENABLE, GET_CONFIG = 15, 16, 17, 18, 24
GET_INFLIGHT, SET_INFLIGHT = 31, 32
NEED_REPLY = 8
PROTOCOL_FEATURES, VERSION_1, EVENT_IDX, INDIRECT, READ_ONLY, FLUSH = 1 << 30, 1 << 32, 1 << 29, 1 << 28, 1 << 5, 1 << 9
LOG_ALL = 1 << 26
MQ, LOG_SHMFD, REPLY_ACK, CHANNEL, CONFIG, INFLIGHT = 1 << 0, 1 << 1, 1 << 3, 1 << 5, 1 << 9, 1 << 12
IN, OUT, FLUSH_REQUEST, GET_ID, DISCARD, WRITE_ZEROES = 0, 1, 4, 8, 11, 13
NEXT, WRITE = 1, 2
# Where the guest's memory begins, as it has it and as its process would.
GUEST, USER = 0x4000_0000, 0x7F00_0000_0000
PAGE = 4096
WITHIN_S = 30


class Failed(Exception):
    """A request with another status than success."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


class Ring:
    """A split ring of a queue, at a place in the client's memory; with memory for the data of each request."""

    def __init__(self, client, number, at, entries, slot):
        self.client, self.number, self.at, self.entries, self.slot = client, number, at, entries, slot
        self.available_at = at + 16 * entries
        self.used_at = (self.available_at + 6 + 2 * entries + 63) & ~63
        self.data_at = (self.used_at + 6 + 8 * entries + 4095) & ~4095
        self.end = self.data_at + (entries // 3) * (slot + 4096)
        self.free = [index * 3 for index in range(entries // 3)]
        self.available = self.seen = 0
        self.waiting = {}
        self.kick, self.call = os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0, os.EFD_NONBLOCK)

    def start(self, base=0):
        client, number = self.client, self.number
        client.send(SET_NUM, struct.pack("=II", number, self.entries))
        client.send(SET_BASE, struct.pack("=II", number, base))
        self.locate()
        client.send(SET_CALL, struct.pack("=Q", number), [self.call])
        client.send(SET_KICK, struct.pack("=Q", number), [self.kick])
        client.send(ENABLE, struct.pack("=II", number, 1))

    def locate(self):
        """Says where the ring is; and that what is written there is to be logged, if the client logs."""
        places = [USER + place for place in (self.at, self.used_at, self.available_at)]
        logs = [1, GUEST + self.used_at] if self.client.log else [0, 0]
        self.client.send(SET_ADDR, struct.pack("=IIQQQQ", self.number, logs[0], *places, logs[1]))

    def take_over(self, other):
        """What a driver knows beside its memory, where its machine has moved."""
        self.free, self.waiting = list(other.free), dict(other.waiting)
        self.available, self.seen = other.available, other.seen

    def stop(self):
        """The next request to take, once nothing is under way."""
        return struct.unpack("=II", self.client.ask(GET_BASE, struct.pack("=II", self.number, 0)))[1]

    def submit(self, kind, sector, data=b"", reads=0, kick=True):
        """Makes a request available. Gives its head."""
        head = self.free.pop()
        place = self.data_at + (head // 3) * (self.slot + 4096)
        self.client.put(place, struct.pack("<IIQB", kind, 0, sector, 0xFF))
        length = len(data) or reads
        self.client.put(place + 4096, data)
        pieces = [(place, 16, 0), (place + 4096, length, 0 if data else WRITE), (place + 16, 1, WRITE)]
        pieces = [piece for piece in pieces if piece[1]]
        for index, (at, size, flags) in enumerate(pieces):
            more = NEXT if index + 1 < len(pieces) else 0
            descriptor = (GUEST + at, size, flags | more, head + index + 1)
            self.client.put(self.at + 16 * (head + index), struct.pack("<QIHH", *descriptor))
        self.client.put(self.available_at + 4 + 2 * (self.available % self.entries), struct.pack("<H", head))
        self.available = (self.available + 1) & 0xFFFF
        self.client.put(self.available_at + 2, struct.pack("<H", self.available))
        self.waiting[head] = (place, reads)
        if kick:
            self.ring()
        return head

    def ring(self):
        os.eventfd_write(self.kick, 1)

    def is_called(self, within_s=WITHIN_S):
        """Whether the driver is called, or was."""
        return bool(select.select([self.call], [], [], within_s)[0])

    def reap(self, within_s=WITHIN_S):
        """One request that has been used: its head, and what was read. Waits for a call."""
        memory = self.client.memory
        if self.client.event_idx:
            self.client.put(self.available_at + 4 + 2 * self.entries, struct.pack("<H", self.seen))
        while struct.unpack_from("<H", memory, self.used_at + 2)[0] == self.seen:
            ready, _, _ = select.select([self.call, self.client.socket], [], [], within_s)
            assert ready, f"no call in {within_s} s"
            if self.call in ready:
                os.eventfd_read(self.call)
            elif not self.client.socket.recv(1, socket.MSG_PEEK):
                raise ConnectionError("the node has ended the connection")
        head, written = struct.unpack_from("<II", memory, self.used_at + 4 + 8 * (self.seen % self.entries))
        self.seen = (self.seen + 1) & 0xFFFF
        place, reads = self.waiting.pop(head)
        self.free.append(head)
        if status := memory[place + 16]:
            raise Failed(status)
        assert written == reads + 1, (written, reads)
        return head, bytes(memory[place + 4096 : place + 4096 + reads])

    def do(self, kind, sector, data=b"", reads=0):
        head = self.submit(kind, sector, data, reads)
        done, read = self.reap()
        assert done == head
        return read

    def read(self, sector, size):
        return self.do(IN, sector, reads=size)

    def write(self, sector, data):
        self.do(OUT, sector, data)

    def ranged(self, kind, sector, sectors, flags=0):
        self.do(kind, 0, struct.pack("<QII", sector, sectors, flags))


class Client:
    """A client of a volume's socket, whose memory and rings outlive connections."""

    def __init__(self, path, queues=1, entries=128, slot=64 << 10, event_idx=True):
        self.path, self.event_idx = str(path), event_idx
        size = queues * ((entries // 3) * (slot + 4096) + 64 * entries + 16384)
        self.size = (size + 4095) & ~4095
        self.file = os.memfd_create("guest", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.file, self.size)
        # F_ADD_SEALS, F_SEAL_SHRINK: as QEMU's memory-backend-memfd does.
        fcntl.fcntl(self.file, 1033, 2)
        self.memory = mmap.mmap(self.file, self.size)
        self.rings, at = [], 0
        for number in range(queues):
            self.rings.append(Ring(self, number, at, entries, slot))
            at = (self.rings[-1].end + 4095) & ~4095
        self.queue_entries = entries
        self.inflight = self.log = None
        # Pages that the driver has written, as a hypervisor would know them.
        self.written = set()
        self.connect()

    def put(self, at, data):
        """The driver writes to its memory."""
        self.memory[at : at + len(data)] = data
        self.written.update(range(at // PAGE, (at + len(data) - 1) // PAGE + 1) if data else ())

    def send(self, request, payload=b"", descriptors=(), acknowledged=None):
        """Sends a message; where messages are acknowledged, waits for that."""
        wants = getattr(self, "acknowledges", False) if acknowledged is None else acknowledged
        head = struct.pack("=III", request, 1 | (NEED_REPLY if wants else 0), len(payload))
        socket.send_fds(self.socket, [head + payload], list(descriptors))
        if wants:
            assert self.answer(request) == bytes(8), f"message {request} has failed"

    def answer(self, request):
        data, descriptors, _, _ = socket.recv_fds(self.socket, 12, 1)
        if not data:
            raise ConnectionError("the node has ended the connection")
        kind, flags, size = struct.unpack("=III", data)
        assert (kind, flags) == (request, 5), (kind, flags)
        self.received = descriptors
        return self.socket.recv(size, socket.MSG_WAITALL)

    def ask(self, request, payload=b""):
        self.send(request, payload, acknowledged=False)
        return self.answer(request)

    def number(self, request):
        return struct.unpack("=Q", self.ask(request))[0]

    def connect(self):
        self.acknowledges = False
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(WITHIN_S)
        self.socket.connect(self.path)
        self.offered = self.number(GET_FEATURES)
        assert self.offered & (self.wanted | LOG_ALL) == self.wanted | LOG_ALL
        protocol = MQ | LOG_SHMFD | REPLY_ACK | CHANNEL | CONFIG | INFLIGHT
        assert self.number(GET_PROTOCOL) & protocol == protocol
        self.send(SET_PROTOCOL, struct.pack("=Q", protocol))
        self.acknowledges = True
        self.send(SET_OWNER)
        self.send(SET_FEATURES, struct.pack("=Q", self.wanted))

    @property
    def wanted(self):
        logs = LOG_ALL if self.log else 0
        return PROTOCOL_FEATURES | VERSION_1 | logs | (EVENT_IDX if self.event_idx else 0)

    def send_channel(self):
        """Gives the node a socket for messages of its own. The other end."""
        here, there = socket.socketpair()
        self.send(SET_CHANNEL, b"", [there.fileno()])
        there.close()
        here.settimeout(WITHIN_S)
        return here

    def begin_to_log(self):
        """Has the node log which pages it writes, as QEMU does when a machine begins to move."""
        size = ((GUEST + self.size) // PAGE // 8 + 8) & ~7
        file = os.memfd_create("log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(file, size)
        fcntl.fcntl(file, 1033, 2)
        self.log = mmap.mmap(file, size)
        self.send(SET_LOG, struct.pack("=QQ", size, 0), [file], acknowledged=False)
        assert self.answer(SET_LOG) == bytes(8)
        os.close(file)
        self.tell_logging()

    def end_to_log(self):
        self.log = None
        self.tell_logging()

    def tell_logging(self):
        self.send(SET_FEATURES, struct.pack("=Q", self.wanted))
        for ring in self.rings:
            ring.locate()

    def copy_to(self, other):
        """Copies the pages that were written since the last time, by the node or by the driver."""
        first = GUEST // PAGE // 8
        taken = self.log[first:]
        # Bits that are set in between are lost, which a hypervisor sees to; nothing is, where the node stands still.
        self.log[first:] = bytes(len(taken))
        bits = int.from_bytes(taken, "little")
        logged = {page for page in range(self.size // PAGE) if bits >> page & 1}
        for page in logged | self.written:
            place = slice(page * PAGE, (page + 1) * PAGE)
            other.memory[place] = self.memory[place]
        self.written = set()
        return logged

    def start(self):
        """Shares the memory, and starts all rings where they had got."""
        shape = (len(self.rings), self.queue_entries)
        if self.inflight is None:
            described = self.ask(GET_INFLIGHT, struct.pack("=QQHHI", 0, 0, *shape, 0))
            self.inflight = (self.received[0], described)
        self.send(SET_INFLIGHT, self.inflight[1], [self.inflight[0]])
        self.send(SET_MEM_TABLE, struct.pack("=IIQQQQ", 1, 0, GUEST, self.size, USER, 0), [self.file])
        for ring in self.rings:
            # As QEMU does it, who knows no more after a connection has ended.
            ring.start(struct.unpack_from("<H", self.memory, ring.used_at + 2)[0])
        return self

    def config(self, size=60):
        payload = self.ask(GET_CONFIG, struct.pack("=III", 0, size, 0) + bytes(size))
        return payload[12:]

    def close(self):
        self.socket.close()
