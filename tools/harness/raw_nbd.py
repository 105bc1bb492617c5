"""The NBD handshake by hand: options sent one by one, right or wrong."""

import socket
import struct

from .nbd import OPT_EXPORT_NAME, OPTION_MAGIC, REP_ACK, REP_ERROR_BIT, open_socket


class Handshake:
    """A connection in the option phase."""

    def __init__(self, uri, client_flags=3):
        self.socket, _ = open_socket(uri, timeout_s=30)
        greeting = self.receive(18)
        assert greeting[:16] == b"NBDMAGICIHAVEOPT", greeting
        self.socket.sendall(struct.pack(">I", client_flags))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def receive(self, length):
        data = self.socket.recv(length, socket.MSG_WAITALL)
        if len(data) != length:
            raise ConnectionError(f"{len(data)} of {length} bytes")
        return data

    def send(self, option, payload=b"", length=None):
        length = len(payload) if length is None else length
        self.socket.sendall(struct.pack(">QII", OPTION_MAGIC, option, length) + payload)

    def reply(self):
        magic, option, kind, length = struct.unpack(">QIII", self.receive(20))
        assert magic == 0x0003E889045565A9
        return kind, self.receive(length) if length else b""

    def ask(self, option, payload=b""):
        self.send(option, payload)
        return self.reply()

    def ask_all(self, option, payload=b""):
        """All replies to one option, up to the acknowledgement or an error."""
        self.send(option, payload)
        replies = []
        while True:
            replies.append(self.reply())
            kind = replies[-1][0]
            if kind == REP_ACK or kind & REP_ERROR_BIT:
                return replies

    def export_name(self, name):
        """Enters transmission the old way; the export's size."""
        self.send(OPT_EXPORT_NAME, name.encode())
        size, _flags = struct.unpack(">QH", self.receive(10))
        return size
