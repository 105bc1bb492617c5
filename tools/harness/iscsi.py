"""An iSCSI initiator of a few lines over a plain socket (RFC 7143): one command or many under way, and a connection
that can be left as it is. For what libiscsi does not do: choose a session's name, and stop in the middle."""

import socket
import struct

BHS = 48
BLOCK = 512
LOGIN, SCSI_COMMAND, LOGOUT = 0x43, 0x01, 0x46
LOGIN_RESPONSE, SCSI_RESPONSE, DATA_IN = 0x23, 0x21, 0x25
READ_10, WRITE_10 = 0x28, 0x2A
FINAL, READS, WRITES = 0x80, 0x40, 0x20


class IscsiError(Exception):
    """The target has answered something else than success."""


class Session:
    """A connection on which a login has been sent. `isid` and `name` say who it is."""

    def __init__(self, address, target, isid=1, name="iqn.2000-01.example:host", tsih=0, within_s=30):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=within_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.within_s, self.cmd_sn, self.itt = within_s, 1, 0
        keys = {"InitiatorName": name, "TargetName": target, "SessionType": "Normal"}
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
        head = self._take(BHS)
        len_ = int.from_bytes(head[5:8])
        return head, self._take(len_ + -len_ % 4)[:len_]

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

    def _command(self, opcode, flags, block, count, data=b""):
        self.itt += 1
        cdb = struct.pack(">BBIBHB", opcode, 0, block, 0, count, 0).ljust(16, b"\0")
        rest = struct.pack(">III", count * BLOCK, self.cmd_sn, 0) + cdb
        self._send(SCSI_COMMAND, FINAL | flags | 1, bytes(8), self.itt, rest, data)
        self.cmd_sn += 1
        return self.itt

    def send_write(self, block, data):
        """Sends a write with all of its data; gives the task's tag."""
        return self._command(WRITE_10, WRITES, block, len(data) // BLOCK, data)

    def send_read(self, block, count):
        """Asks for so many blocks of 512 bytes; gives the task's tag."""
        return self._command(READ_10, READS, block, count)

    def answer(self):
        """The next answer that has a status: the task's tag, the status, and what was read."""
        read = b""
        while True:
            head, data = self._receive()
            itt = int.from_bytes(head[16:20])
            if head[0] == SCSI_RESPONSE:
                return itt, head[3], read
            assert head[0] == DATA_IN, head
            read += data
            if head[1] & 1:
                return itt, head[3], read

    def write(self, block, data):
        """Writes, and waits for the answer."""
        itt = self.send_write(block, data)
        answered, status, _ = self.answer()
        if (answered, status) != (itt, 0):
            raise IscsiError(f"write {itt}: task {answered} ended with status {status:#04x}")

    def read(self, block, count):
        """Reads so many blocks of 512 bytes."""
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
