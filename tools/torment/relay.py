"""An NBD relay that hides from a client that its node died: it connects to the next and repeats what was unanswered.

It stands for the multipath driver of a client's machine; nbdfuse and fio give up at the first broken connection.
It writes the number of answers to SOCKET.count. Its own process: `python -m tools.torment.relay SOCKET URI...`.
"""

import os
import socket
import struct
import sys
import threading
import time
from collections import Counter
from errno import ESHUTDOWN

from tools.harness import nbd

REQUEST = struct.Struct(">IHHQQI")
ANSWER_WITHIN_S = 90
COUNT_EVERY_S = 0.2
# Requests answered so far, by session.
answered = Counter()


def receive(connection, length):
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(length - len(parts))
        if not part:
            raise ConnectionError("closed")
        parts += part
    return bytes(parts)


class Session:
    """One client's connection, and the one to the node that serves it now."""

    def __init__(self, client, uris):
        self.client, self.uris = client, list(uris)
        self.pending = {}
        self.sending = threading.Lock()
        self.over = False
        self.node = None

    def serve(self):
        with self.sending:
            self._connect()
        self._shake_hands()
        threading.Thread(target=self._answers, daemon=True).start()
        try:
            self._requests()
        except OSError:
            pass
        self.over = True
        self.node.socket.close()

    def _connect(self):
        while not self.over:
            try:
                self.node = nbd.Client(self.uris[0], ANSWER_WITHIN_S)
                return
            except OSError as error:
                print(f"{time.time():.3f} {self.uris[0]}: {error}", flush=True)
                self.uris.append(self.uris.pop(0))
                time.sleep(0.05)

    def _shake_hands(self):
        self.client.sendall(struct.pack(">QQH", nbd.NBD_MAGIC, nbd.OPTION_MAGIC, 3))
        receive(self.client, 4)
        # One connection is enough: what several of them may assume of each other is the gateways' own business.
        export = struct.pack(">QH", self.node.size, self.node.flags & ~0x100)
        while True:
            _, option, length = struct.unpack(">QII", receive(self.client, 16))
            receive(self.client, length)
            if option in (nbd.OPT_GO, nbd.OPT_INFO):
                self._reply(option, nbd.REP_INFO, struct.pack(">H", nbd.INFO_EXPORT) + export)
                self._reply(option, nbd.REP_ACK)
                if option == nbd.OPT_GO:
                    return
            elif option == nbd.OPT_ABORT:
                self._reply(option, nbd.REP_ACK)
                raise ConnectionError("the client wants nothing")
            else:
                self._reply(option, nbd.REP_ERR_UNSUP)

    def _reply(self, option, kind, payload=b""):
        self.client.sendall(struct.pack(">QIII", 0x0003E889045565A9, option, kind, len(payload)) + payload)

    def _requests(self):
        while True:
            header = receive(self.client, REQUEST.size)
            _, _, command, cookie, _, length = REQUEST.unpack(header)
            if command == nbd.CMD_DISC:
                return
            request = header + receive(self.client, length) if command == nbd.CMD_WRITE else header
            with self.sending:
                self.pending[cookie] = (request, length if command == nbd.CMD_READ else 0)
                try:
                    self.node.socket.sendall(request)
                except OSError:
                    # The other thread notices too, and repeats it.
                    pass

    def _answers(self):
        while not self.over:
            try:
                header = receive(self.node.socket, 16)
                _, error, cookie = struct.unpack(">IIQ", header)
                length = self.pending[cookie][1]
                data = receive(self.node.socket, length) if length and not error else b""
                # Another session of this client has gone to another node, which has taken the volume over.
                if error == ESHUTDOWN:
                    raise ConnectionError("another node has the volume")
            except OSError as error:
                if not self.over:
                    self._reconnect(error)
                continue
            del self.pending[cookie]
            answered[self] += 1
            if error:
                print(f"{time.time():.3f} PROBLEM error {error} from {self.uris[0]}", flush=True)
            try:
                self.client.sendall(header + data)
            except OSError:
                return

    def _reconnect(self, error):
        print(f"{time.time():.3f} {self.uris[0]} lost: {error!r}, {len(self.pending)} unanswered", flush=True)
        with self.sending:
            self.node.socket.close()
            while not self.over:
                self.uris.append(self.uris.pop(0))
                self._connect()
                try:
                    for request, _ in list(self.pending.values()):
                        self.node.socket.sendall(request)
                    print(f"{time.time():.3f} reconnected to {self.uris[0]}", flush=True)
                    return
                except OSError:
                    self.node.socket.close()


def tell_count(path):
    """Writes the number of answers into a file, again and again."""
    while True:
        time.sleep(COUNT_EVERY_S)
        with open(f"{path}.new", "w") as file:
            file.write(str(sum(answered.values())))
        os.replace(f"{path}.new", path)


def main():
    path, uris = sys.argv[1], sys.argv[2:]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chmod(path, 0o666)
        listener.listen()
        threading.Thread(target=tell_count, args=(f"{path}.count",), daemon=True).start()
        while True:
            client, _ = listener.accept()
            threading.Thread(target=lambda: _serve(client, uris), daemon=True).start()


def _serve(client, uris):
    try:
        Session(client, uris).serve()
    except OSError:
        pass
    finally:
        client.close()


if __name__ == "__main__":
    main()
