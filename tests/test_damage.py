"""Bits that change on a device: reads give the right bytes from the other copy, or an error; never wrong bytes."""

import json
import os
import random

import pytest

from tools.harness.cluster import run_cli
from tools.harness.device import find_blocks, flip_bit, log_files
from tools.harness.nbd import EIO, Client, NbdError
from tools.harness.process import wait_until

BLOCK = 4096
BLOCKS = 256


def write_marked(cluster):
    """Blocks with contents that can be found again in the log files, and their digests by number."""
    generator = random.Random(4)
    contents = [generator.randbytes(BLOCK) for _ in range(BLOCKS)]
    with Client(cluster.first.uri()) as client:
        for number, content in enumerate(contents):
            client.write(number * BLOCK, content)
    return contents


def damage(cluster, contents, copies):
    """Flips a bit in the payload of `copies` copies of every eighth block; the numbers of the damaged blocks."""
    damaged = list(range(0, BLOCKS, 8))
    logs = [(path, find_blocks(path, contents)) for node in cluster.nodes for path in log_files(node)]
    for number in damaged:
        places = [(path, found[number][-1]) for path, found in logs if number in found]
        assert len(places) == 2, f"block {number} has {len(places)} copies in the logs"
        for path, offset in places[:copies] if number % 16 else places[-copies:]:
            flip_bit(path, offset + 100 + number, number % 8)
    return damaged


@pytest.mark.parametrize("copies", [1, 2])
def test_a_flipped_bit_is_never_read_as_data(make_cluster, copies):
    cluster = make_cluster(device_size="512MiB")
    cluster.create_volume(size="64MiB")
    contents = write_marked(cluster)
    # Stopped, so that nothing lies in a cache.
    cluster.stop()
    damaged = set(damage(cluster, contents, copies))
    cluster.start()
    for node in cluster.nodes:
        with Client(node.uri()) as client:
            for number, content in enumerate(contents):
                try:
                    data = client.read(number * BLOCK, BLOCK)
                except NbdError as error:
                    assert error.code == EIO
                    assert number in damaged and copies == 2, f"block {number}: an error while a copy is whole"
                else:
                    assert data == content, f"block {number} through {node.name}: wrong bytes"
                    assert copies == 1 or number not in damaged
    # A bad block can be written again, and is good then.
    with Client(cluster.nodes[1].uri()) as client:
        for number in sorted(damaged):
            client.write(number * BLOCK, contents[-1])
            assert client.read(number * BLOCK, BLOCK) == contents[-1]


def test_blocks_that_nobody_has_keep_no_copy_out(make_cluster):
    """A copy comes back, and the only other one has bad blocks: all else is safe again, and those stay errors."""
    cluster = make_cluster(nodes=2, config="etcd", device_size="512MiB")
    cluster.create_volume(size="64MiB")
    write_marked(cluster)
    cluster.nodes[1].kill()
    generator = random.Random(9)
    newer = [generator.randbytes(BLOCK) for _ in range(BLOCKS)]
    with Client(cluster.first.uri()) as client:
        for number, content in enumerate(newer):
            client.write(number * BLOCK, content)
    cluster.first.stop()
    bad = set(range(0, BLOCKS, 8))
    for path in log_files(cluster.first):
        found = find_blocks(path, newer)
        for number in bad:
            flip_bit(path, found[number][-1] + 100)
    # Healthy is: all copies in sync.
    cluster.start()

    def check(node):
        with Client(node.uri()) as client:
            for number, content in enumerate(newer):
                try:
                    assert client.read(number * BLOCK, BLOCK) == content, f"block {number}"
                    assert number not in bad, f"block {number} can't be known"
                except NbdError as error:
                    assert error.code == EIO and number in bad, f"block {number}"

    for node in cluster.nodes:
        check(node)
    cluster.first.kill()
    check(cluster.nodes[1])
    with Client(cluster.nodes[1].uri()) as client:
        for number in bad:
            client.write(number * BLOCK, newer[1])
            assert client.read(number * BLOCK, BLOCK) == newer[1]


def findings(cluster):
    return cluster.json_of_unhealthy("status")["scrubbed"]["findings"]


def mended(cluster):
    """Blocks that the nodes' logs say were written anew."""
    return sum(node.log().count(" of the copy on device ") for node in cluster.nodes)


def test_a_bad_block_is_written_anew_once_somebody_has_read_it(make_cluster):
    cluster = make_cluster(device_size="512MiB")
    cluster.create_volume(size="64MiB")
    contents = write_marked(cluster)
    cluster.stop()
    damaged = damage(cluster, contents, 1)
    assert cluster.unsound() > 0
    # What was mended just before a stop is in the logs alone.
    unnoted = 0
    # Each node prefers its own copy, so all copies are read.
    for _ in range(3):
        cluster.start()
        for node in cluster.nodes:
            with Client(node.uri()) as client:
                for number, content in enumerate(contents):
                    assert client.read(number * BLOCK, BLOCK) == content
        # What readers meet is noted together, after a moment.
        wait_until(lambda lost=unnoted: findings(cluster) == mended(cluster) - lost > 0, 60, "the notes of readers")
        assert any("written anew" in note for note in cluster.json_of_unhealthy("status")["notes"])
        noted = findings(cluster)
        cluster.stop()
        unnoted = mended(cluster) - noted
        if cluster.unsound() == 0:
            assert mended(cluster) == len(damaged)
            return
    raise AssertionError("damage is left although every block of every copy was read")


def test_store_check_finds_the_damage(make_cluster):
    cluster = make_cluster(device_size="512MiB")
    cluster.create_volume(size="64MiB")
    contents = write_marked(cluster)
    cluster.stop()
    folders = [path.parent for node in cluster.nodes for path in log_files(node)]
    for folder in folders:
        sound = run_cli("store", "check", folder, "--deep")
        assert sound.returncode == 0, sound.stdout + sound.stderr
    damage(cluster, contents, 2)
    codes = [run_cli("store", "check", folder, "--deep", "--json") for folder in folders]
    assert any(done.returncode != 0 for done in codes), "no check found the flipped bits"
    for done in codes:
        json.loads(done.stdout)


def test_store_check_finds_a_log_that_was_cut(make_cluster):
    cluster = make_cluster(nodes=1, device_size="400MiB")
    cluster.create_volume(size="64MiB", copies=1)
    cluster.stop()
    (log,) = log_files(cluster.first)
    os.truncate(log, 100 << 20)
    cut = run_cli("store", "check", log.parent)
    assert cut.returncode != 0 and "1 errors" in cut.stdout, cut.stdout + cut.stderr
    assert f"log has {100 << 20} bytes, of {400 << 20}" in cut.stdout and "Start its node" in cut.stdout, cut.stdout


@pytest.mark.parametrize("copy", [0, 1])
def test_a_torn_tail_of_the_log_is_not_data(make_cluster, copy):
    """A device lost parts of newest batches that it had called durable: the other copy has what was acknowledged.

    The very last batch of the log is among them: nothing on that device proves that it had been durable, so the copy
    takes it for a torn one. The copies compare how far they are before anybody serves.
    """
    cluster = make_cluster(device_size="512MiB")
    cluster.create_volume(size="64MiB")
    contents = write_marked(cluster)
    cluster.kill_all()
    lost = (BLOCKS - 1, BLOCKS - 2, BLOCKS - 3)
    logs = [(path, find_blocks(path, contents)) for node in cluster.nodes for path in log_files(node)]
    holders = [(path, found) for path, found in logs if all(number in found for number in lost)]
    assert len(holders) == 2, "the blocks lie in one chunk, so one group of two devices has them"
    path, found = holders[copy]
    with open(path, "r+b") as file:
        for number in lost:
            file.seek(found[number][-1] + 1024)
            file.write(bytes(2048))
    cluster.start()
    for node in cluster.nodes:
        with Client(node.uri()) as client:
            for number, content in enumerate(contents):
                assert client.read(number * BLOCK, BLOCK) == content, f"block {number} through {node.name}"
