"""The NBD front end as clients see it: nbdinfo, qemu-io, nbdcopy, qemu-img, and requests at every alignment."""

import json
import random

import pytest

from tools.harness.nbd import (
    CMD_READ,
    CMD_WRITE,
    EINVAL,
    ENOSPC,
    OPT_ABORT,
    OPT_INFO,
    OPT_LIST,
    REP_ACK,
    REP_ERR_UNKNOWN,
    REP_ERR_UNSUP,
    REP_SERVER,
    Client,
    NbdError,
)
from tools.harness.process import wait_until
from tools.harness.raw_nbd import Handshake
from tools.harness.run import run

GIB = 2**30
MIB = 2**20


def nbdinfo(uri):
    return json.loads(run("nbdinfo", "--json", uri).stdout)["exports"][0]


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_every_gateway_serves_the_volume(shared_cluster, volume, tcp):
    for node in shared_cluster.nodes:
        export = nbdinfo(node.uri(volume, tcp))
        assert export["export-size"] == GIB
        for ability in ("can_flush", "can_fua", "can_trim", "can_zero", "can_fast_zero", "can_cache", "can_multi_conn"):
            assert export[ability] is True, f"{node.name}: {ability}"
        assert export["is_read_only"] is False
        assert export["block_size_minimum"] == 1
        assert export["block_size_preferred"] == 4096
        assert export["block_size_maximum"] == 32 * MIB


def test_list_names_every_volume(shared_cluster, volume):
    def names():
        listed = json.loads(run("nbdinfo", "--json", "--list", shared_cluster.first.uri("")).stdout)
        return [export["export-name"] for export in listed["exports"]]

    # A list tells what the node knows: a moment ago it may not have heard of the volume.
    wait_until(lambda: volume in names(), 10, "the volume to be listed")


def test_what_one_gateway_writes_all_others_read(shared_cluster, volume):
    data = random.Random(1).randbytes(3 * MIB)
    with Client(shared_cluster.first.uri(volume)) as writer:
        writer.write(5 * MIB + 1, data)
    for node in shared_cluster.nodes:
        for tcp in (False, True):
            with Client(node.uri(volume, tcp)) as reader:
                assert reader.read(5 * MIB + 1, len(data)) == data, f"{node.name}, tcp={tcp}"


def test_qemu_io_patterns_at_odd_alignments(shared_cluster, volume):
    """Each range starts and ends inside blocks, across blocks, across 4 MiB chunks; neighbours stay as they were."""
    places = [(1, 1), (511, 2), (4095, 2), (8192, 4096), (13000, 9000), (4 * MIB - 3, 7)]
    places += [(8 * MIB - 4097, 8195), (GIB - 5, 5)]
    commands = []
    for number, (offset, length) in enumerate(places, 1):
        commands += ["-c", f"write -P {number} {offset} {length}"]
    commands += ["-c", "flush"]
    for number, (offset, length) in enumerate(places, 1):
        commands += ["-c", f"read -P {number} {offset} {length}"]
    # What lies between the writes was never written.
    commands += ["-c", "read -P 0 0 1", "-c", "read -P 0 2 509", "-c", f"read -P 0 {20 * MIB + 1} 100000"]
    done = run("qemu-io", "-f", "raw", *commands, shared_cluster.first.uri(volume))
    assert "Pattern verification failed" not in done.stdout + done.stderr


def test_unaligned_writes_beside_each_other_lose_nothing(shared_cluster, volume):
    """Many writes in flight into the same blocks, each with bytes of its own: read-modify-write must be atomic."""
    length, count = 96, 1024
    with Client(shared_cluster.nodes[1].uri(volume)) as client:
        pending = set()
        for index in range(count):
            data = bytes([index % 251 + 1]) * length
            pending.add(client.send(CMD_WRITE, MIB + index * length, data=data))
            if len(pending) == 64:
                pending.discard(answered(client))
        while pending:
            pending.discard(answered(client))
        whole = client.read(MIB, length * count)
    for index in range(count):
        assert whole[index * length : (index + 1) * length] == bytes([index % 251 + 1]) * length, f"piece {index}"


def answered(client):
    cookie, error, _ = client.receive()
    assert error == 0
    return cookie


def test_random_requests_against_a_model(shared_cluster, volume):
    """Writes, zeroes, trims and reads of any size and place against a plain array of bytes."""
    generator = random.Random(7)
    size = 12 * MIB
    model = bytearray(size)
    with Client(shared_cluster.first.uri(volume)) as client:
        for _ in range(300):
            offset = generator.randrange(size)
            length = min(generator.choice([1, 100, 4096, 5000, 65536, 700_000]), size - offset)
            kind = generator.choice(["write", "write", "zero", "read", "read"])
            if kind == "write":
                data = generator.randbytes(length)
                client.write(offset, data)
                model[offset : offset + length] = data
            elif kind == "zero":
                client.write_zeroes(offset, length)
                model[offset : offset + length] = bytes(length)
            else:
                assert client.read(offset, length) == model[offset : offset + length], (offset, length)
        assert client.read(0, size) == model


def test_trim_reads_as_zeros_where_whole_blocks_were_given_up(shared_cluster, volume):
    with Client(shared_cluster.first.uri(volume)) as client:
        client.write(0, b"x" * MIB)
        client.trim(4096, 512 * 1024)
        assert client.read(0, 4096) == b"x" * 4096
        assert client.read(4096, 512 * 1024) == bytes(512 * 1024)
        assert client.read(4096 + 512 * 1024, 4096) == b"x" * 4096
    mapped = json.loads(run("nbdinfo", "--json", "--map", shared_cluster.first.uri(volume)).stdout)
    extent = next(part for part in mapped if part["offset"] <= 8192 < part["offset"] + part["length"])
    assert extent["type"] == 3, "a trimmed range is a hole and reads as zeros"


def test_the_largest_request(shared_cluster, volume):
    data = random.Random(3).randbytes(32 * MIB)
    with Client(shared_cluster.first.uri(volume)) as client:
        client.write(64 * MIB, data)
        assert client.read(64 * MIB, 32 * MIB) == data


def test_requests_beyond_the_end_are_refused(shared_cluster, volume):
    with Client(shared_cluster.first.uri(volume)) as client:
        for call in (lambda: client.read(GIB - 1, 2), lambda: client.write(GIB - 1, b"xy")):
            with pytest.raises(NbdError) as refused:
                call()
            assert refused.value.code in (EINVAL, ENOSPC)
        client.send(CMD_READ, 2**63, 4096)
        assert client.receive()[1] == EINVAL
        assert client.read(GIB - 1, 1) == b"\0", "the connection goes on"


def test_unknown_options_and_names_are_answered(shared_cluster, volume):
    with Handshake(shared_cluster.first.uri(tcp=True)) as talk:
        assert talk.ask(200, b"what is this")[0] == REP_ERR_UNSUP
        assert talk.ask(OPT_INFO, b"\0\0\0\x05nope!\0\0")[0] == REP_ERR_UNKNOWN
        names = []
        for kind, payload in talk.ask_all(OPT_LIST):
            if kind == REP_SERVER:
                names.append(payload[4:].decode())
        assert volume in names
        assert talk.ask(OPT_ABORT)[0] == REP_ACK


def test_every_node_serves_a_volume_as_soon_as_it_is_made(shared_cluster):
    for turn in range(6):
        name = f"new{turn}"
        shared_cluster.cli("volume", "create", name, "64MiB", "--shared")
        try:
            for node in reversed(shared_cluster.nodes):
                with Client(node.uri(name)) as client:
                    client.write(turn, b"x")
            shared_cluster.cli("snapshot", "create", f"{name}@then")
            for node in reversed(shared_cluster.nodes):
                with Client(node.uri(f"{name}@then")) as client:
                    assert client.read(0, turn + 1) == bytes(turn) + b"x", node.name
        finally:
            shared_cluster.delete_volume(name)


def test_old_export_name_option(shared_cluster, volume):
    with Handshake(shared_cluster.first.uri(tcp=True)) as talk:
        assert talk.export_name(volume) == GIB


def test_disk_image_in_and_out_with_nbdcopy(shared_cluster, volume, folder):
    image = make_ext4_image(folder, 256)
    run("nbdcopy", image, shared_cluster.first.uri(volume))
    for node in shared_cluster.nodes:
        out = folder / "out.img"
        run("nbdcopy", node.uri(volume, tcp=True), out)
        run("cmp", f"--bytes={256 * MIB}", image, out)
        out.unlink()


def test_qcow2_image_in_and_out_with_qemu_img(shared_cluster, volume, folder):
    image = make_ext4_image(folder, 128)
    compressed = folder / "image.qcow2"
    run("qemu-img", "convert", "-c", "-O", "qcow2", image, compressed)
    uri = shared_cluster.nodes[2].uri(volume)
    run("qemu-img", "convert", "-n", "-O", "raw", compressed, uri)
    run("qemu-img", "convert", "-O", "qcow2", uri, folder / "back.qcow2")
    run("qemu-img", "resize", "-f", "raw", image, "1G")
    run("qemu-img", "compare", image, folder / "back.qcow2")
    run("qemu-img", "compare", "-f", "raw", "-F", "raw", image, uri)


def make_ext4_image(folder, mib):
    """A file system image with real files in it: this project's own sources."""
    from tools.harness.cluster import ROOT

    tree = folder / "tree"
    tree.mkdir()
    for part in ("crates", "tests", "tools", "scripts"):
        run("cp", "-r", ROOT / part, tree / part)
    image = folder / "image.raw"
    run("mkfs.ext4", "-q", "-d", tree, image, f"{mib}M")
    return image


def test_fio_verifies_what_it_wrote(shared_cluster, volume, folder):
    run(
        "fio",
        "--name=v",
        "--ioengine=nbd",
        f"--uri={shared_cluster.first.uri(volume)}",
        "--size=96M",
        "--rw=randwrite",
        "--bsrange=512-128k",
        "--bs_unaligned=1",
        "--iodepth=32",
        "--verify=crc32c",
        "--verify_fatal=1",
        cwd=folder,
    )
