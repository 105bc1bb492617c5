"""An iSCSI initiator of a few lines over a plain socket (RFC 7143): one command or many under way, and a connection
that can be left as it is. For what libiscsi does not do: choose a session's name, and stop in the middle."""

import socket
import struct

BHS = 48
NO_TAG = 0xFFFF_FFFF
BLOCK = 512
LOGIN, SCSI_COMMAND, TEXT, LOGOUT, NOP_OUT = 0x43, 0x01, 0x04, 0x46, 0x40
LOGIN_RESPONSE, SCSI_RESPONSE, TEXT_RESPONSE, DATA_IN, NOP_IN = 0x23, 0x21, 0x24, 0x25, 0x20
# What carries no status, and so does not count as one.
R2T = 0x31
READ_10, WRITE_10, COMPARE_AND_WRITE, ORWRITE, EXTENDED_COPY, INQUIRY = 0x28, 0x2A, 0x89, 0x8B, 0x83, 0x12
REPORT_LUNS = 0xA0
RESERVE_IN, RESERVE_OUT, MAINTENANCE_IN = 0x5E, 0x5F, 0xA3
GOOD, CHECK_CONDITION, BUSY, RESERVATION_CONFLICT = 0, 2, 8, 0x18
# Service actions of PERSISTENT RESERVE OUT (SPC-4 section 6.16), and a type of reservations.
REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_AND_ABORT, REGISTER_AND_IGNORE = range(7)
WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 5
FINAL, READS, WRITES = 0x80, 0x40, 0x20


class IscsiError(Exception):
    """The target has answered something else than success."""


class Session:
    """A connection on which a login has been sent. `isid` and `name` say who it is, `block` how many bytes the logical
    blocks of the volume have. Commands go to the logical unit `lun`."""

    def __init__(
        self,
        address,
        target,
        isid=1,
        name="iqn.2000-01.example:host",
        tsih=0,
        within_s=30,
        discovers=False,
        block=BLOCK,
    ):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=within_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.within_s, self.cmd_sn, self.itt, self.block, self.lun = within_s, 1, 0, block, 0
        self.exp_stat_sn, self.sense = 0, None
        keys = {"InitiatorName": name, "SessionType": "Discovery" if discovers else "Normal"}
        keys |= {} if discovers else {"TargetName": target}
        keys |= {"ImmediateData": "Yes", "MaxRecvDataSegmentLength": "262144"}
        text = b"".join(f"{key}={value}\0".encode() for key, value in keys.items())
        # From the operational stage to the full feature phase; the ISID is of the type "random" (section 11.12.5).
        isid = b"\x80" + isid.to_bytes(5)
        self._send(LOGIN, 0x87, isid + struct.pack(">H", tsih), 0, struct.pack(">III", 0, self.cmd_sn, 0), text)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def _send(self, opcode, flags, lun, itt, rest, data=b""):
        head = struct.pack(">BBHI", opcode, flags, 0, len(data)) + lun + struct.pack(">I", itt) + rest
        self.socket.sendall(head.ljust(BHS, b"\0") + data + b"\0" * (-len(data) % 4))

    def _take(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the target has closed the connection")
            data += piece
        return data

    def _receive(self):
        while True:
            head = self._take(BHS)
            len_ = int.from_bytes(head[5:8])
            data = self._take(len_ + -len_ % 4)[:len_]
            if head[0] not in (NOP_IN, R2T) and (head[0] != DATA_IN or head[1] & 1):
                self.exp_stat_sn = int.from_bytes(head[24:28]) + 1 & 0xFFFF_FFFF
            if head[0] != NOP_IN:
                return head, data
            # The target asks whether this lives.
            self._send(NOP_OUT, FINAL, head[8:16], NO_TAG, head[20:24] + struct.pack(">II", self.cmd_sn, 0))

    def login_status(self, within_s=None):
        """The status class and detail of the login's answer; `None` when there is none within that time."""
        self.socket.settimeout(within_s or self.within_s)
        try:
            head, _ = self._receive()
        except TimeoutError:
            return None
        finally:
            self.socket.settimeout(self.within_s)
        assert head[0] == LOGIN_RESPONSE, head
        self.tsih = int.from_bytes(head[14:16])
        return int.from_bytes(head[36:38])

    def log_in(self):
        """Waits for the login's success."""
        if status := self.login_status():
            raise IscsiError(f"the login was refused with {status:#06x}")
        return self

    def targets(self):
        """What SendTargets=All is answered: keys and values, in order. It has to fit into one answer."""
        rest = struct.pack(">III", 0xFFFF_FFFF, self.cmd_sn, 0)
        self._send(TEXT, FINAL, bytes(8), 0x7E57, rest, b"SendTargets=All\0")
        self.cmd_sn += 1
        head, data = self._receive()
        assert head[0] == TEXT_RESPONSE and head[1] & FINAL, head
        return [pair.decode().split("=", 1) for pair in data.split(b"\0") if pair]

    def _command(self, opcode, flags, block, count, data=b""):
        cdb = struct.pack(">BBIBHB", opcode, 0, block, 0, count, 0)
        return self._task(cdb, flags, count * self.block, data)

    def _task(self, cdb, flags, length, data=b""):
        self.itt += 1
        rest = struct.pack(">III", length, self.cmd_sn, self.exp_stat_sn) + cdb.ljust(16, b"\0")
        self._send(SCSI_COMMAND, FINAL | flags | 1, struct.pack(">H6x", self.lun), self.itt, rest, data)
        self.cmd_sn += 1
        return self.itt

    def on(self, lun):
        """The same session, whose next commands go to this logical unit."""
        self.lun = lun
        return self

    def luns(self):
        """The numbers of the logical units that it sees (REPORT LUNS)."""
        status, data = self.status_of(self._task(struct.pack(">B5xI2x", REPORT_LUNS, 4096), READS, 4096))
        assert status == GOOD, status
        return [int.from_bytes(data[at : at + 2]) for at in range(8, len(data), 8)]

    def ready(self):
        """Whether the unit is ready (TEST UNIT READY): `None`, or sense key, code and qualifier that say why not."""
        status, _ = self.status_of(self._task(bytes(6), 0, 0))
        return None if status == GOOD else self.sense

    def send_write(self, block, data):
        """Sends a write with all of its data; gives the task's tag."""
        return self._command(WRITE_10, WRITES, block, len(data) // self.block, data)

    def send_read(self, block, count):
        """Asks for so many blocks; gives the task's tag."""
        return self._command(READ_10, READS, block, count)

    def compare_and_write(self, block, expected, data):
        """Replaces a block by `data` if it holds what is expected; gives whether it did."""
        cdb = struct.pack(">BBQ3xB", COMPARE_AND_WRITE, 0, block, 1)
        status, _ = self.status_of(self._task(cdb, WRITES, 2 * self.block, expected + data))
        if status not in (GOOD, CHECK_CONDITION):
            raise IscsiError(f"COMPARE AND WRITE ended with status {status:#04x}")
        return status == GOOD

    def send_or(self, block, bits):
        """Sets bits in what is there, of whole blocks; gives the task's tag."""
        cdb = struct.pack(">BBQI", ORWRITE, 0, block, len(bits) // self.block)
        return self._task(cdb, WRITES, len(bits), bits)

    def _copied_unit(self, lun):
        """What names a logical unit in a list of EXTENDED COPY."""
        own, self.lun = self.lun, lun
        page = self.status_of(self._task(struct.pack(">BBBHx", INQUIRY, 1, 0x83, 255), READS, 255))[1]
        self.lun = own
        assert page[5] == 3, page
        return struct.pack(">BBHBBxB20sI", 0xE4, 0, 0, 1, 3, 8, page[8:16], self.block)

    def copy_status(self, source, destination, count, from_lun=None):
        """Has blocks copied to the unit by EXTENDED COPY, from itself or from another one, in one segment; gives the
        status."""
        targets = self._copied_unit(self.lun if from_lun is None else from_lun) + self._copied_unit(self.lun)
        segment = struct.pack(">BBHHHxxHQQ", 2, 0, 24, 0, 1, count, source, destination)
        data = struct.pack(">BBHxxxxII", 1, 0, len(targets), len(segment), 0) + targets + segment
        return self.status_of(self._task(struct.pack(">B9xI", EXTENDED_COPY, len(data)), WRITES, len(data), data))[0]

    def ask(self, cdb, room):
        """Sends a command that reads at most so many bytes; gives its status, and what was read."""
        return self.status_of(self._task(cdb, READS, room))

    def send_data(self, cdb, data):
        """Sends a command with data; gives its status."""
        return self.status_of(self._task(cdb, WRITES, len(data), data))[0]

    def answer(self):
        """The next answer that has a status: the task's tag, the status, and what was read."""
        read = b""
        while True:
            head, data = self._receive()
            itt = int.from_bytes(head[16:20])
            if head[0] == SCSI_RESPONSE:
                self.sense = (data[4] & 15, data[14], data[15]) if len(data) > 15 else None
                return itt, head[3], read
            assert head[0] == DATA_IN, head
            read += data
            if head[1] & 1:
                return itt, head[3], read

    def status_of(self, itt):
        """The status of a task, whose answer is the next one, and what was read."""
        answered, status, read = self.answer()
        assert answered == itt, (answered, itt)
        return status, read

    def send_reserve_out(self, action, key=0, other=0, kind=WRITE_EXCLUSIVE_REGISTRANTS_ONLY):
        """Sends PERSISTENT RESERVE OUT: `other` is what it registers, or the key that it puts out."""
        cdb = struct.pack(">BBB2xIx", RESERVE_OUT, action, kind, 24)
        return self._task(cdb, WRITES, 24, struct.pack(">QQ8x", key, other))

    def reserve_out(self, action, key=0, other=0, kind=WRITE_EXCLUSIVE_REGISTRANTS_ONLY):
        """The status of PERSISTENT RESERVE OUT."""
        return self.status_of(self.send_reserve_out(action, key, other, kind))[0]

    def _reserve_in(self, action):
        itt = self._task(struct.pack(">BB5xHx", RESERVE_IN, action, 4096), READS, 4096)
        status, data = self.status_of(itt)
        if status != GOOD:
            raise IscsiError(f"PERSISTENT RESERVE IN ended with status {status:#04x}")
        return data[8 : 8 + int.from_bytes(data[4:8])]

    def keys(self):
        """The keys that are registered."""
        data = self._reserve_in(0)
        return [int.from_bytes(data[at : at + 8]) for at in range(0, len(data), 8)]

    def reservation(self):
        """The key of who holds the reservation, and its type; `None`: there is none."""
        data = self._reserve_in(1)
        return (int.from_bytes(data[:8]), data[13] & 15) if data else None

    def port_group(self):
        """The node's target port group, and its state (REPORT TARGET PORT GROUPS): 0 optimized, 1 not optimized."""
        status, data = self.status_of(self._task(struct.pack(">BB4xI", MAINTENANCE_IN, 0x0A, 255), READS, 255))
        if status != GOOD:
            raise IscsiError(f"REPORT TARGET PORT GROUPS ended with status {status:#04x}")
        return int.from_bytes(data[6:8]), data[4] & 15

    def attentions(self):
        """Takes the unit attentions that wait; gives how many commands they have cost."""
        count = 0
        while self.status_of(self._task(bytes(6), 0, 0))[0] == CHECK_CONDITION:
            count += 1
        return count

    def write_status(self, block, data):
        """Writes, and gives the status."""
        return self.status_of(self.send_write(block, data))[0]

    def write(self, block, data):
        """Writes, and waits for the answer."""
        itt = self.send_write(block, data)
        answered, status, _ = self.answer()
        if (answered, status) != (itt, 0):
            raise IscsiError(f"write {itt}: task {answered} ended with status {status:#04x}")

    def read(self, block, count):
        """Reads so many blocks."""
        itt = self.send_read(block, count)
        answered, status, data = self.answer()
        if (answered, status) != (itt, 0):
            raise IscsiError(f"read {itt}: task {answered} ended with status {status:#04x}")
        return data

    def is_closed(self, within_s):
        """True when the target closes the connection within that time, whatever else it sends before."""
        self.socket.settimeout(within_s)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True
