"""Somebody on the way between a client and a server: keeps what crosses, and may change what a client says."""

import contextlib
import socket
import threading

from tools.harness.cluster import HOST
from tools.harness.process import free_port


class Relay:
    """Passes connections on to a port.

    `change(data, client)` returns what the server gets instead of `data`, and may answer the client itself.
    """

    def __init__(self, port, change=None):
        self.target = (HOST, port)
        self.change = change
        # Of each connection, what the client has sent and what the server has.
        self.streams = []
        self.listener = socket.create_server((HOST, free_port()))
        self.port = self.listener.getsockname()[1]
        self.address = f"{HOST}:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def kept(self):
        """All that has crossed."""
        return b"".join(bytes(stream) for stream in list(self.streams))

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.target)
            except OSError:
                return
            for source, sink, change in [(client, server, self.change), (server, client, None)]:
                self.streams.append(kept := bytearray())
                threading.Thread(target=self._pass, args=(source, sink, change, kept), daemon=True).start()

    def _pass(self, source, sink, change, kept):
        try:
            while data := source.recv(1 << 16):
                kept += data
                sink.sendall(change(data, source) if change else data)
        except OSError:
            pass
        for end in (source, sink):
            shut(end)

    def close(self):
        """Takes no more connections. Those that are there end with their ends."""
        shut(self.listener)


def shut(end):
    """Ends a connection. While another thread waits in its `recv`, a mere `close` would not tell the peer."""
    with contextlib.suppress(OSError):  # The peer was faster.
        end.shutdown(socket.SHUT_RDWR)
    end.close()
