"""DH-HMAC-CHAP as an NVMe host does it (NVMe Base 2.0 section 8.13.5), with Python's own hmac."""

import base64
import hmac
import os
import struct
import zlib

HASHES = {1: "sha256", 2: "sha384", 3: "sha512"}
# SECP and SPSP of Authentication Send and Receive, and the room for a message.
PROTOCOL, SPECIFIC, ROOM = 0xE9, 0x0101, 4096
TRANSACTION, SEQUENCE = 0x1234, 0x89ABCDEF
CHALLENGE, SUCCESS1, FAILURE1 = (1, 1), (1, 3), (0, 0xF1)


class Refused(Exception):
    """An authentication that has failed: by the controller's word, or by this side's judgement of the controller."""


def key_of(secret, name):
    """The key of a secret's text, as who has this name uses it."""
    word, transform, coded, end = secret.split(":")
    raw = base64.b64decode(coded)
    assert (word, end) == ("DHHC-1", "") and zlib.crc32(raw[:-4]).to_bytes(4, "little") == raw[-4:], "a broken secret"
    if transform == "00":
        return raw[:-4]
    return hmac.digest(raw[:-4], name.encode() + b"NVMe-over-Fabrics", HASHES[int(transform)])


def response(secret, function, challenge, sequence, names, word):
    """What proves the secret; `names` begins with the prover's own."""
    first, second = (name.encode() for name in names)
    message = challenge + struct.pack("<IHB", sequence, TRANSACTION, 0) + word + first + b"\0" + second
    return hmac.digest(key_of(secret, names[0]), message, HASHES[function])


def message(kind, rest):
    return struct.pack("<BBHH", *kind, 0, TRANSACTION) + rest


def security(length):
    return struct.pack("<BHBI", 0, SPECIFIC, PROTOCOL, length)


def send(queue, data):
    queue.fabrics(5, security(len(data)), data)


def fetch(queue):
    data = queue.fabrics(6, security(ROOM), room=ROOM)[1]
    assert data[4:6] == TRANSACTION.to_bytes(2, "little"), data[:16]
    if (data[0], data[1]) == FAILURE1:
        raise Refused(f"failure {data[7]}")
    return data


def authenticate(queue, host, subsystem, secret, controllers=None, hashes=(1, 2, 3)):
    """Proves `secret` on a queue that has just connected; with the controller's, that one is to be proved back."""
    lists = bytes(hashes).ljust(30, b"\0") + bytes(30)
    send(queue, message((0, 0), struct.pack("<BBBBBB", 0, 1, 1, 0, len(hashes), 1) + lists))
    data = fetch(queue)
    assert (data[0], data[1]) == CHALLENGE and data[9] == 0, data[:16]
    length, function = data[6], data[8]
    (sequence,) = struct.unpack("<I", data[12:16])
    own = os.urandom(length)
    shown = response(secret, function, data[16 : 16 + length], sequence, (host, subsystem), b"HostHost")
    asks = controllers is not None
    head = struct.pack("<BBBBHI", length, 0, asks, 0, 0, SEQUENCE)
    send(queue, message((1, 2), head + shown + (own if asks else bytes(length))))
    data = fetch(queue)
    assert (data[0], data[1], data[6]) == (*SUCCESS1, length), data[:16]
    if asks:
        wanted = response(controllers, function, own, SEQUENCE, (subsystem, host), b"Controller")
        if data[8] != 1 or data[16 : 16 + length] != wanted:
            send(queue, message((0, 0xF0), bytes([1, 1])))
            raise Refused("the controller does not know its secret")
        send(queue, message((1, 4), bytes(10)))
