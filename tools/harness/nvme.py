"""A host of NVMe/TCP in a few lines: connects queues, sends commands, and waits for their answers."""

import socket
import struct

from tools.harness import dhchap

SUBSYSTEM = "nqn.2026-01.io.azekura:"
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
HOST = "nqn.2000-01.example:tests"
CC, CSTS = 0x14, 0x1C
ENABLE = 0x0046_0001
# In what is answered to Connect: the host has to prove something first.
AUTHENTICATION_REQUIRED = 1 << 17
# MAXH2CDATA, which the node says in ICResp.
DATA_MAX = 256 << 10
SUCCESS, FUSED_FAILED, RESERVATION_CONFLICT, COMPARE_FAILURE = 0x000, 0x009, 0x083, 0x285
# Reservation Register, Report, Acquire and Release, and what they do.
RESV_REGISTER, RESV_REPORT, RESV_ACQUIRE, RESV_RELEASE = 0x0D, 0x0E, 0x11, 0x15
REGISTER, UNREGISTER, REPLACE = range(3)
ACQUIRE, PREEMPT, PREEMPT_AND_ABORT = range(3)
RELEASE, CLEAR = range(2)
IGNORES_KEY = 8
WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 3


class Failed(Exception):
    """A command that was completed with another status than success."""

    def __init__(self, status):
        super().__init__(f"status {status:#05x}")
        self.status = status


class Queue:
    """A connection that is a queue."""

    def __init__(
        self,
        address,
        subsystem,
        controller=0xFFFF,
        queue=0,
        keep_alive_ms=0,
        host_id=1,
        name=HOST,
        secrets=(),
        block=512,
    ):
        """With the host's secret, and perhaps the controller's, it proves that, and has that proved. `block`: how many
        bytes the logical blocks of the volume have."""
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.id, self.block = 0, block
        self.send(struct.pack("<BBBBIHBBI", 0, 0, 128, 0, 128, 0, 0, 0, 0) + bytes(112))
        kind, _, rest, _ = self.receive()
        assert kind == 1 and rest[:4] == bytes(4), (kind, rest)
        names = [subsystem.encode(), name.encode()]
        data = struct.pack("<16sH238x256s256s256x", bytes([host_id] * 16), controller, *names)
        twelve = struct.pack("<HHHBxI", 0, queue, 31, 0, keep_alive_ms)
        answer, _ = self.fabrics(1, twelve, data)
        self.controller = answer & 0xFFFF
        if answer & AUTHENTICATION_REQUIRED and secrets:
            dhchap.authenticate(self, name, subsystem, *secrets)

    def send(self, data):
        self.socket.sendall(data)

    def receive(self):
        """The type, flags, header behind the common one, and data of the next PDU."""
        kind, flags, size, _, whole = struct.unpack("<BBBBI", self.exactly(8))
        return kind, flags, self.exactly(size - 8), self.exactly(whole - size)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the node has closed the connection")
            data += more
        return data

    def begin(self, entry_of, data=b"", room=0):
        """Sends a command: `entry_of` makes the entry of its number and its descriptor. Gives the number."""
        self.id += 1
        if data:
            sgl = struct.pack("<QI3xB", 0, len(data), 0x01)
        else:
            sgl = struct.pack("<QI3xB", 0, room, 0x5A)
        entry = entry_of(self.id, sgl)
        assert len(entry) == 64
        offset = 72 if data else 0
        self.send(struct.pack("<BBBBI", 4, 0, 72, offset, 72 + len(data)) + entry + data)
        return self.id

    def complete(self, number, data=b""):
        """Waits for a command's answer, and sends `data` when it is asked for. Dword 0 and 1, and what was read."""
        read = b""
        while True:
            kind, _, rest, more = self.receive()
            if kind == 9:
                command, tag, offset, count = struct.unpack("<HHII", rest[:12])
                self.transfer(command, tag, offset, data[offset : offset + count])
            elif kind == 7:
                read += more
            else:
                assert kind == 5, kind
                result, _, _, command, status = struct.unpack("<QHHHH", rest)
                assert command == number
                if status >> 1 & 0x7FF:
                    raise Failed(status >> 1 & 0x7FF)
                return result, read

    def transfer(self, command, tag, offset, data):
        for at in range(0, len(data), DATA_MAX):
            part = data[at : at + DATA_MAX]
            flags = 4 if at + len(part) == len(data) else 0
            head = struct.pack("<BBBBI", 6, flags, 24, 24, 24 + len(part))
            self.send(head + struct.pack("<HHII4x", command, tag, offset + at, len(part)) + part)

    def ask(self, opcode, dwords=(), data=b"", room=0, namespace=0, asked_for=b""):
        """A command with Command Dwords 10 and up."""
        tail = struct.pack("<6I", *[*dwords, 0, 0, 0, 0, 0, 0][:6])

        def entry(number, sgl):
            return struct.pack("<BBHI16x", opcode, 0x40, number, namespace) + sgl + tail

        return self.complete(self.begin(entry, data, room or len(asked_for)), asked_for)

    def fabrics(self, kind, tail, data=b"", room=0):
        def entry(number, sgl):
            return struct.pack("<BBHB19x", 0x7F, 0x40, number, kind) + sgl + tail.ljust(24, b"\0")

        return self.complete(self.begin(entry, data, room))

    def set_property(self, offset, value):
        self.fabrics(0, struct.pack("<B3xIQ", 0, offset, value))

    def get_property(self, offset):
        return self.fabrics(4, struct.pack("<B3xI", 0, offset))[0]

    def identify(self, structure, namespace=0):
        return self.ask(0x06, [structure], room=4096, namespace=namespace)[1]

    def log(self, page, count, offset=0):
        dwords = count // 4 - 1
        return self.ask(0x02, [page | (dwords & 0xFFFF) << 16, dwords >> 16, offset], room=count)[1]

    def write(self, block, data):
        """In a capsule what fits into one, and otherwise as it is asked for."""
        dwords = [block, 0, len(data) // self.block - 1]
        if len(data) <= 8192:
            self.ask(0x01, dwords, data=data, namespace=1)
        else:
            self.ask(0x01, dwords, namespace=1, asked_for=data)

    def read(self, block, count):
        return self.ask(0x02, [block, 0, count // self.block - 1], room=count, namespace=1)[1]

    def status(self, *arguments, **options):
        """As `ask`, but gives the status."""
        try:
            self.ask(*arguments, **options)
        except Failed as failed:
            return failed.status
        return SUCCESS

    def write_status(self, block, data):
        return self.status(0x01, [block, 0, len(data) // self.block - 1], data=data, namespace=1)

    def send_write(self, block, data):
        """A write whose answer is not waited for; its data fits into a capsule."""
        tail = struct.pack("<6I", block, 0, len(data) // self.block - 1, 0, 0, 0)
        return self.begin(lambda number, sgl: struct.pack("<BBHI16x", 1, 0x40, number, 1) + sgl + tail, data)

    def compare_and_write(self, block, expected, data):
        """Two fused commands: replaces blocks by `data` if they hold what is expected; gives whether they did."""
        tail = struct.pack("<6I", block, 0, len(data) // self.block - 1, 0, 0, 0)

        def part(opcode, fuse, data):
            flags = 0x40 | fuse
            return self.begin(lambda number, sgl: struct.pack("<BBHI16x", opcode, flags, number, 1) + sgl + tail, data)

        statuses = []
        for number in [part(0x05, 1, expected), part(0x01, 2, data)]:
            try:
                self.complete(number)
                statuses.append(SUCCESS)
            except Failed as failed:
                statuses.append(failed.status)
        if statuses == [COMPARE_FAILURE, FUSED_FAILED]:
            return False
        if any(statuses):
            raise Failed(max(statuses))
        return True

    def reserve(self, opcode, action, key=0, other=0, kind=WRITE_EXCLUSIVE_REGISTRANTS_ONLY):
        """The status of a command that changes reservations; `other` is NRKEY or PRKEY."""
        ten = action | (0 if opcode == RESV_REGISTER else kind << 8)
        return self.status(opcode, [ten], data=struct.pack("<QQ", key, other), namespace=1)

    def registrants(self):
        """The kind of the reservation, and of each registrant its key, whether it holds it, and its host identifier."""
        data = self.ask(RESV_REPORT, [4096 // 4 - 1, 1], room=4096, namespace=1)[1]
        count = int.from_bytes(data[5:7], "little")
        entries = [data[64 * at : 64 * (at + 1)] for at in range(1, count + 1)]
        assert data[9] == 1, "they outlast a loss of power"
        listed = [(int.from_bytes(entry[8:16], "little"), entry[2] == 1, entry[16:32]) for entry in entries]
        return data[4], listed

    def request_event(self):
        """An Asynchronous Event Request, whose answer is not waited for."""
        return self.begin(lambda number, sgl: struct.pack("<BBHI16x", 0x0C, 0x40, number, 0) + sgl + bytes(24))

    def notification(self):
        """What the log says next of the registration: 1 preempted, 2 reservation released, 3 cleared; 0: nothing."""
        return self.log(0x80, 64)[8]

    def access_state(self):
        """The ANA state of a controller's namespace: 1 optimized, 2 not optimized."""
        return self.log(0x0C, 52)[32] & 15

    def close(self):
        self.socket.close()


def listed(address, **options):
    """What a discovery finds: subsystem, address and port."""
    queue = Queue(address, DISCOVERY, **options)
    queue.set_property(CC, ENABLE)
    (count,) = struct.unpack("<Q", queue.log(0x70, 1024)[8:16])
    text = lambda field: field.split(b"\0")[0].decode()  # noqa: E731
    entries = [queue.log(0x70, 1024, (number + 1) * 1024) for number in range(count)]
    queue.close()
    return [(text(entry[256:512]), text(entry[512:768]), text(entry[32:64])) for entry in entries]


def controller(address, volume, **options):
    """The admin queue of a controller that is enabled."""
    admin = Queue(address, SUBSYSTEM + volume, **options)
    admin.set_property(CC, ENABLE)
    assert admin.get_property(CSTS) == 1
    return admin


def io_queue(address, volume, admin, queue, **options):
    return Queue(address, SUBSYSTEM + volume, admin.controller, queue, **options)
