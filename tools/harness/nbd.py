"""A small NBD client in plain Python: enough of the protocol to know which write was acknowledged, and no more.

Section numbers and names are those of the NBD protocol document (fixed newstyle handshake, simple replies).
"""

import os
import socket
import struct
from urllib.parse import parse_qs, urlparse

NBD_MAGIC = 0x4E42444D41474943
OPTION_MAGIC = 0x49484156454F5054
REPLY_MAGIC = 0x0003E889045565A9
REQUEST_MAGIC = 0x25609513
SIMPLE_REPLY_MAGIC = 0x67446698

FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES = 1, 2
OPT_EXPORT_NAME, OPT_ABORT, OPT_LIST, OPT_STARTTLS, OPT_INFO, OPT_GO = 1, 2, 3, 5, 6, 7
REP_ACK, REP_SERVER, REP_INFO = 1, 2, 3
REP_ERROR_BIT = 1 << 31
REP_ERR_UNSUP, REP_ERR_UNKNOWN = REP_ERROR_BIT | 1, REP_ERROR_BIT | 6
REP_ERR_POLICY, REP_ERR_TLS_REQD = REP_ERROR_BIT | 2, REP_ERROR_BIT | 5
INFO_EXPORT, INFO_BLOCK_SIZE = 0, 3
CMD_READ, CMD_WRITE, CMD_DISC, CMD_FLUSH, CMD_TRIM, CMD_CACHE, CMD_WRITE_ZEROES = range(7)
CMD_FLAG_FUA, CMD_FLAG_NO_HOLE = 1, 2

ENOSPC, EINVAL, EIO = 28, 22, 5


class NbdError(Exception):
    """The server answered with an error; `code` is the NBD error number."""

    def __init__(self, what, code):
        super().__init__(f"{what}: error {code} ({os.strerror(code)})")
        self.code = code


def open_socket(uri, timeout_s=60):
    """A connected socket for an nbd:// or nbd+unix:// URI, and the export's name."""
    parts = urlparse(uri)
    if parts.scheme == "nbd+unix":
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout_s)
        connection.connect(parse_qs(parts.query)["socket"][0])
    else:
        connection = socket.create_connection((parts.hostname, parts.port or 10809), timeout=timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection, parts.path.lstrip("/")


class Client:
    """One connection to one export. Requests may be sent ahead and their replies taken later, in any order.

    With `tls`, an `ssl.SSLContext`, it begins TLS before all else.
    """

    def __init__(self, uri, timeout_s=60, tls=None):
        self.tls = tls
        self.socket, self.export = open_socket(uri, timeout_s)
        self.next_cookie = 1
        self.read_lengths = {}
        try:
            self._handshake()
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _receive(self, length):
        parts = bytearray(length)
        view, done = memoryview(parts), 0
        while done < length:
            count = self.socket.recv_into(view[done:])
            if count == 0:
                raise ConnectionError("the server closed the connection")
            done += count
        return bytes(parts)

    def _handshake(self):
        magic, options, flags = struct.unpack(">QQH", self._receive(18))
        if magic != NBD_MAGIC or options != OPTION_MAGIC or not flags & FLAG_FIXED_NEWSTYLE:
            raise ConnectionError("not a fixed newstyle NBD server")
        self.socket.sendall(struct.pack(">I", FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES))
        if self.tls is not None:
            self.send_option(OPT_STARTTLS, b"")
            kind, payload = self.option_reply(OPT_STARTTLS)
            if kind != REP_ACK:
                raise ConnectionError(f"no TLS: {payload.decode(errors='replace')} ({kind:#x})")
            self.socket = self.tls.wrap_socket(self.socket, server_hostname=self.socket.getpeername()[0])
        name = self.export.encode()
        wanted = struct.pack(">HH", 1, INFO_BLOCK_SIZE)
        self.send_option(OPT_GO, struct.pack(">I", len(name)) + name + wanted)
        self.size = None
        while True:
            kind, payload = self.option_reply(OPT_GO)
            if kind == REP_ACK:
                break
            if kind & REP_ERROR_BIT:
                raise ConnectionError(f"no export '{self.export}': {payload.decode(errors='replace')} ({kind:#x})")
            if kind == REP_INFO and struct.unpack(">H", payload[:2])[0] == INFO_EXPORT:
                self.size, self.flags = struct.unpack(">QH", payload[2:12])
        if self.size is None:
            raise ConnectionError("the server did not tell the export's size")

    def send_option(self, option, payload):
        self.socket.sendall(struct.pack(">QII", OPTION_MAGIC, option, len(payload)) + payload)

    def option_reply(self, option):
        magic, about, kind, length = struct.unpack(">QIII", self._receive(20))
        if magic != REPLY_MAGIC or about != option:
            raise ConnectionError("an option reply out of place")
        return kind, self._receive(length)

    def send(self, command, offset=0, length=0, data=b"", flags=0):
        """Sends a request and returns its cookie."""
        cookie = self.next_cookie
        self.next_cookie += 1
        if command == CMD_READ:
            self.read_lengths[cookie] = length
        header = struct.pack(">IHHQQI", REQUEST_MAGIC, flags, command, cookie, offset, len(data) or length)
        self.socket.sendall(header + data)
        return cookie

    def receive(self):
        """The next reply: (cookie, error number, data of a read)."""
        magic, error, cookie = struct.unpack(">IIQ", self._receive(16))
        if magic != SIMPLE_REPLY_MAGIC:
            raise ConnectionError(f"a reply with magic {magic:#x}")
        length = self.read_lengths.pop(cookie, 0)
        return cookie, error, self._receive(length) if length and not error else b""

    def _call(self, what, *request, **more):
        cookie = self.send(*request, **more)
        answered, error, data = self.receive()
        if answered != cookie:
            raise ConnectionError("an answer to another request")
        if error:
            raise NbdError(what, error)
        return data

    def read(self, offset, length):
        return self._call(f"read of {length} at {offset}", CMD_READ, offset, length)

    def write(self, offset, data, flags=0):
        self._call(f"write of {len(data)} at {offset}", CMD_WRITE, offset, data=data, flags=flags)

    def flush(self):
        self._call("flush", CMD_FLUSH)

    def trim(self, offset, length):
        self._call(f"trim of {length} at {offset}", CMD_TRIM, offset, length)

    def write_zeroes(self, offset, length, flags=0):
        self._call(f"zeroes of {length} at {offset}", CMD_WRITE_ZEROES, offset, length, flags=flags)

    def close(self):
        try:
            self.socket.sendall(struct.pack(">IHHQQI", REQUEST_MAGIC, 0, CMD_DISC, 0, 0, 0))
        except OSError:
            pass
        self.socket.close()
