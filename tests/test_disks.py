"""Whole disks as devices (loop devices here): taken when they are blank, found again, and never taken otherwise."""

import contextlib
import json
import os
import subprocess

import pytest

from tools.harness.cluster import binary, run_cli
from tools.harness.nbd import Client
from tools.harness.process import wait_until
from tools.harness.run import run

HAS_LOOPS = os.geteuid() == 0 and os.path.exists("/dev/loop-control")
pytestmark = [pytest.mark.root, pytest.mark.skipif(not HAS_LOOPS, reason="needs root and loop devices")]

MIB = 1 << 20
SIZE = 1 << 30


class Disks:
    """Loop devices over sparse files, with names of their own in a folder, as udev gives names to disks."""

    def __init__(self, folder):
        self.folder = folder
        self.loops = {}
        (folder / "by-id").mkdir()

    def name(self, disk):
        return self.folder / "by-id" / disk

    def add(self, disk):
        image = self.folder / f"{disk}.img"
        with open(image, "ab") as file:
            file.truncate(SIZE)
        self.loops[disk] = run("losetup", "--find", "--show", image).stdout.strip()
        self.name(disk).symlink_to(self.loops[disk])
        return self.name(disk)

    def remove(self, disk):
        self.name(disk).unlink()
        subprocess.run(["losetup", "--detach", self.loops.pop(disk)], check=False)

    def close(self):
        for disk in list(self.loops):
            self.remove(disk)


@pytest.fixture
def disks(folder):
    made = Disks(folder)
    with contextlib.closing(made):
        yield made


def refusal(node):
    """What a node says that does not start."""
    ended = subprocess.run([binary(), *node.arguments()], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1, ended
    return ended.stderr


def devices(cluster):
    return {device["name"]: device for device in cluster.json("device", "list")}


def wipe(disk, *options):
    return run_cli("store", "wipe", disk, *options)


def sound(node):
    """The offline check of all devices of a stopped node, every block read."""
    for device in sorted(node.data.glob("device-*")):
        # The kernel ends what a killed process had under way before it gives up the process's locks.
        told = lambda: run_cli("store", "check", "--deep", device)  # noqa: E731, B023
        wait_until(lambda: "would block" not in told().stderr, 120, "the device")
        checked = told()
        assert checked.returncode == 0, checked


@pytest.mark.alone
def test_blank_disks_become_devices_and_are_found_again(make_cluster, disks):
    cluster = make_cluster(nodes=1, start=False)
    node = cluster.first
    node.disks = [disks.add("disk-a"), disks.add("disk-b")]
    cluster.start()
    # A device is up as soon as its group's peers may use it. Its size is that of its log until the node's first report,
    # and from then on what clients can use of it: without the reserve, 0.7 of so small a disk.
    large = lambda: {name for name, device in devices(cluster).items() if device["capacity_bytes"] > 0.6 * SIZE}  # noqa: E731
    wait_until(lambda: large() == {"device-0", "device-1"}, 300, "the sizes of both devices")
    assert os.readlink(node.data / "device-1" / "log") == str(disks.name("disk-b"))
    cluster.create_volume("vol1", "256MiB", copies=1)
    pattern = os.urandom(MIB)
    with Client(node.uri()) as client:
        for at in range(0, 256 * MIB, 32 * MIB):
            client.write(at, pattern)
        client.flush()
    node.kill()
    sound(node)
    # A third one appears; all are meant by a pattern now.
    disks.add("disk-c")
    node.disks = [disks.folder / "by-id" / "disk-*"]
    cluster.start()
    wait_until(lambda: set(devices(cluster)) == {"device-0", "device-1", "device-2"}, 120, "the third device")
    with Client(node.uri()) as client:
        for at in range(0, 256 * MIB, 32 * MIB):
            assert client.read(at, MIB) == pattern
    node.stop()
    sound(node)
    # Names of disks that are swapped are noticed before anything is written, and no copy is given up.
    one, two = (os.readlink(disks.name(disk)) for disk in ("disk-a", "disk-b"))
    for disk, loop in (("disk-a", two), ("disk-b", one)):
        disks.name(disk).unlink()
        disks.name(disk).symlink_to(loop)
    node.start()
    swapped = lambda: [device for device in devices(cluster).values() if device.get("failure")]  # noqa: E731
    answers = lambda: run_cli("device", "list", api=node.api).returncode == 0  # noqa: E731
    wait_until(lambda: answers() and len(swapped()) == 2, 120, "a failure")
    for device in swapped():
        assert "is the disk of device" in device["problem"] and device["failure"] != "lost", device
    node.stop()
    for disk, loop in (("disk-a", one), ("disk-b", two)):
        disks.name(disk).unlink()
        disks.name(disk).symlink_to(loop)
    cluster.start()
    with Client(node.uri()) as client:
        assert client.read(32 * MIB, MIB) == pattern


def test_a_disk_that_comes_late_is_waited_for(make_cluster, disks):
    cluster = make_cluster(nodes=1, start=False)
    node = cluster.first
    node.disks = [disks.add("disk-a"), disks.add("disk-b")]
    cluster.start()
    node.stop()
    disks.remove("disk-b")
    node.start()
    wait_until(lambda: run_cli("device", "list", api=node.api).returncode == 0, 120, "the node")
    assert node.alive
    disks.add("disk-b")
    cluster.wait_healthy()
    assert not [device for device in devices(cluster).values() if device.get("failure")]


def test_a_pattern_may_find_nothing(make_cluster, disks):
    """One option serves a fleet of machines: those without a blank disk keep no data, and serve what others keep."""
    cluster = make_cluster(nodes=2, start=False)
    one, two = cluster.nodes
    one.disks = [disks.add("disk-a")]
    two.disks = [disks.folder / "by-id" / "other-*"]
    one.start()
    wait_until(lambda: run_cli("device", "list", api=one.api).returncode == 0 and devices(cluster), 60, "a device")
    two.start()
    nodes = lambda: run_cli("node", "list", "--json", api=two.api)  # noqa: E731
    wait_until(lambda: nodes().returncode == 0 and len(json.loads(nodes().stdout)) == 2, 60, "the second node")
    assert set(devices(cluster)) == {"device-0"}
    assert "no disk was found" in two.log()
    cluster.create_volume("vol1", "256MiB", copies=1)
    pattern = os.urandom(MIB)
    with Client(two.uri()) as client:
        client.write(0, pattern)
        assert client.read(0, MIB) == pattern
    # One that has something on it is told, with the way to have it all the same.
    other = disks.add("other-b")
    run("mkfs.ext4", "-q", "-F", other)
    two.stop()
    two.start()
    wait_until(lambda: "azekura store wipe" in two.log(), 120, "the refusal")
    two.stop()
    assert wipe(other, "--yes").returncode == 0
    two.start()
    wait_until(lambda: len(cluster.json("device", "list")) == 2, 120, "the second node's device")
    cluster.wait_healthy()


def put_end(disk):
    with open(disk, "r+b", buffering=0) as file:
        file.seek(SIZE - 4096)
        file.write(b"\xa5" * 4096)


def put_table(disk):
    """An MBR with a Linux partition of one MiB."""
    entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little") + (2048).to_bytes(4, "little")
    with open(disk, "r+b", buffering=0) as file:
        file.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")


CONTENTS = {
    "ext4": lambda disk: run("mkfs.ext4", "-q", "-F", disk),
    "swap": lambda disk: run("mkswap", disk),
    "a partition table": put_table,
    "data of an unknown kind": put_end,
}


@pytest.mark.parametrize("what", list(CONTENTS))
def test_a_disk_with_something_on_it_is_left_alone(make_cluster, disks, what):
    cluster = make_cluster(nodes=1, start=False)
    node = cluster.first
    disk = disks.add("disk-a")
    CONTENTS[what](disk)
    digest = run("sha256sum", disk).stdout.split()[0]
    node.disks = [disk]
    told = refusal(node)
    assert what in told and "azekura store wipe" in told, told
    assert not list(node.data.glob("device-*"))
    asked = wipe(disk)
    assert asked.returncode == 1 and what in asked.stderr and "--yes" in asked.stderr, asked
    assert run("sha256sum", disk).stdout.split()[0] == digest
    # Beside a disk that can be taken, the node does without this one.
    node.disks = [disk, disks.add("disk-b")]
    cluster.start()
    assert set(devices(cluster)) == {"device-0"} and what in node.log()
    assert run("sha256sum", disk).stdout.split()[0] == digest
    assert wipe(disk, "--yes").returncode == 0
    node.stop()
    cluster.start()
    wait_until(lambda: set(devices(cluster)) == {"device-0", "device-1"}, 120, "the disk that was wiped")


def test_a_disk_that_is_used_is_left_alone(make_cluster, disks, folder):
    cluster = make_cluster(nodes=1, start=False)
    node = cluster.first
    disk = disks.add("disk-a")
    run("mkfs.ext4", "-q", "-F", disk)
    point = folder / "point"
    point.mkdir()
    run("mount", disk, point)
    try:
        node.disks = [disk]
        assert "is in use" in refusal(node)
        held = wipe(disk, "--yes")
        assert held.returncode == 1 and "is in use" in held.stderr, held
    finally:
        run("umount", point)
    assert wipe(disk, "--yes").returncode == 0
    cluster.start()
    held = wipe(disk, "--yes")
    assert held.returncode == 1 and "is in use" in held.stderr, held
    for nonsense, told in ((folder / "none", "there is no disk"), (folder, "is no block device")):
        cluster_of_none = make_cluster(nodes=1, start=False)
        cluster_of_none.first.disks = [nonsense]
        assert told in refusal(cluster_of_none.first)


def test_a_disk_of_another_cluster_is_left_alone_until_it_is_wiped(make_cluster, disks):
    """What an earlier cluster has left in the middle of the disk is nothing to the next one."""
    disk = disks.add("disk-a")
    former = make_cluster(nodes=1, start=False)
    former.first.disks = [disk]
    former.start()
    former.create_volume("vol1", "512MiB", copies=1)
    with Client(former.first.uri()) as client:
        for at in range(0, 512 * MIB, MIB):
            client.write(at, b"former" * 1000 + bytes(MIB - 6000))
        client.flush()
    former.first.stop()
    cluster = make_cluster(nodes=1, start=False)
    node = cluster.first
    node.disks = [disk]
    assert "of the Azekura cluster" in refusal(node)
    assert wipe(disk, "--yes").returncode == 0
    cluster.start()
    cluster.create_volume("vol1", "256MiB", copies=1)
    with Client(node.uri()) as client:
        for at in range(0, 64 * MIB, MIB):
            client.write(at, b"newer" * 1000 + bytes(MIB - 5000))
        client.flush()
        node.kill()
    sound(node)
    cluster.start()
    with Client(node.uri()) as client:
        for at in range(0, 64 * MIB, MIB):
            assert client.read(at, MIB) == b"newer" * 1000 + bytes(MIB - 5000)
        assert client.read(64 * MIB, MIB) == bytes(MIB)
