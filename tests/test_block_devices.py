"""azekura attach, detach, attached: volumes as block devices of this machine, by FUSE and a loop device.

The ways of kernels that have NVMe/TCP and NBD are for ./dev guest (tests/guest_attach.py)."""

import json
import os
import shutil
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

from tools.harness.cluster import run_cli
from tools.harness.nbd import Client
from tools.harness.process import wait_until
from tools.harness.run import run

MIB = 1 << 20
HAS_DEVICES = os.geteuid() == 0 and os.path.exists("/dev/loop-control") and os.path.exists("/dev/fuse")
PROGRAMS = [name for name in ("qemu-storage-daemon", "nbdfuse") if shutil.which(name)]
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not HAS_DEVICES, reason="needs root, FUSE and loop devices"),
    pytest.mark.skipif(not PROGRAMS, reason="neither qemu-storage-daemon nor nbdfuse is here: ./dev test has them"),
]


class Machine:
    """The commands of a machine, whose ways keep what they need in a folder of its own."""

    def __init__(self, cluster, folder):
        self.api = cluster.first.api
        self.state = folder / "s"

    def told(self, *words):
        return run_cli(*words, "--state", self.state, api=self.api)

    def json(self, *words):
        done = self.told(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def attach(self, *words):
        return self.json("attach", *words)

    def detach(self, volume):
        return self.json("detach", volume)

    def attached(self):
        return {each["volume"]: each for each in self.json("attached")}

    def refused(self, *words):
        done = self.told(*words)
        assert done.returncode in (1, 3, 4), done.stdout
        return done.stderr

    def close(self):
        for each in self.attached():
            self.told("detach", each)


@pytest.fixture(scope="module")
def cluster(module_cluster):
    return module_cluster(nodes=2)


@pytest.fixture
def machine(cluster, folder):
    return Machine(cluster, folder)


@pytest.fixture
def volume(cluster, machine):
    """Links of all tests of a machine are in one folder, so the name is nobody else's."""
    name = f"v-{uuid.uuid4().hex[:12]}"
    cluster.create_volume(name, "64MiB", copies=2)
    yield name
    machine.close()
    wait_until(lambda: not cluster.json("volume", "show", name)["attachments"], 30, "the volume to be given back")
    cluster.delete_volume(name)


def test_a_volume_is_attached_and_detached(cluster, machine, volume):
    made = machine.attach(volume)
    assert made["via"] == "fuse" and made["node"] == "n1", made
    # NBD comes behind what waits for a node that restarts.
    better = ["nvme"] if "qemu-storage-daemon" in PROGRAMS else ["nvme", "nbd"]
    assert [gone["via"] for gone in made["passed_over"]] == better
    assert "--nvme" in made["passed_over"][0]["why"]
    link = Path(made["link"])
    assert link.parent == Path("/dev/azekura") and os.readlink(link) == made["device"]
    pattern = os.urandom(MIB)
    with open(link, "r+b", buffering=0) as device:
        device.seek(5 * MIB)
        device.write(pattern)
    # Again: the same device, also while nobody answers at the API.
    again = run_cli("attach", volume, "--state", machine.state, "--json", api="http://127.0.0.1:1")
    assert json.loads(again.stdout)["device"] == made["device"], again.stderr
    shown = machine.attached()[volume]
    assert shown["size_bytes"] == 64 * MIB and shown["link"] == str(link) and shown["mounted"] == []
    assert volume in machine.told("attached").stdout
    assert machine.detach(volume)["device"] == made["device"]
    assert not link.is_symlink() and machine.attached() == {}
    # All that was written is in the volume.
    with Client(cluster.first.uri(volume)) as client:
        assert client.read(5 * MIB, MIB) == pattern
    assert machine.detach(volume)["device"] is None
    assert "was not attached" in machine.told("detach", volume).stdout


def test_what_is_mounted_is_not_detached(machine, volume, folder):
    link = machine.attach(volume)["link"]
    run("mkfs.ext4", "-q", link)
    point = folder / "point"
    point.mkdir()
    run("mount", os.path.realpath(link), point)
    try:
        refused = machine.refused("detach", volume)
        assert f"mounted at {point}" in refused and "unmount" in refused
        assert machine.attached()[volume]["mounted"] == [str(point)]
    finally:
        run("umount", point)
    run("mkswap", link)
    run("swapon", link)
    try:
        assert "swap" in machine.refused("detach", volume)
    finally:
        run("swapoff", link)
    machine.detach(volume)


def test_a_file_system_stays(machine, volume, folder):
    link = machine.attach(volume)["link"]
    run("mkfs.ext4", "-q", link)
    point = folder / "point"
    point.mkdir()
    # Named by the link, as programs may.
    run("mount", "--no-canonicalize", link, point)
    try:
        (point / "a").write_text("here")
        assert f"mounted at {point}" in machine.refused("detach", volume)
    finally:
        run("umount", point)
    machine.detach(volume)
    run("mount", os.path.realpath(machine.attach(volume)["link"]), point)
    try:
        assert (point / "a").read_text() == "here"
    finally:
        run("umount", point)


def test_a_snapshot_is_attached_to_read(cluster, machine, volume):
    with Client(cluster.first.uri(volume)) as client:
        client.write(0, b"before" + bytes(4090))
        client.flush()
        cluster.cli("snapshot", "create", f"{volume}@monday")
        client.write(0, b"after-" + bytes(4090))
    link = machine.attach(f"{volume}@monday")["link"]
    with open(link, "rb") as device:
        assert device.read(6) == b"before"
    with pytest.raises(OSError), open(link, "r+b", buffering=0) as device:
        device.write(bytes(4096))
    machine.detach(f"{volume}@monday")
    cluster.cli("snapshot", "delete", f"{volume}@monday")


def test_a_volume_that_is_in_use_is_refused(cluster, machine, volume):
    with Client(cluster.nodes[1].uri(volume)):
        wait_until(lambda: cluster.json("volume", "show", volume)["attachments"], 30, "the attachment")
        refused = machine.refused("attach", volume)
        assert "in use" in refused and "n2" in refused and "azekura volume detach" in refused
    assert machine.attached() == {}
    wait_until(lambda: not cluster.json("volume", "show", volume)["attachments"], 30, "the volume to be given back")
    # One that is kept for a node is used through that node.
    cluster.cli("volume", "attach", volume, "--node", "n2")
    assert machine.attach(volume)["node"] == "n2"
    machine.detach(volume)
    assert "attached to node n2" in machine.refused("attach", volume, "--node", "n1")
    cluster.cli("volume", "detach", volume)


def test_a_node_that_restarts_is_waited_for(cluster, machine, volume):
    if "qemu-storage-daemon" not in PROGRAMS:
        pytest.skip("nbdfuse does not connect again: qemu-storage-daemon is not installed")
    link = machine.attach(volume, "--node", "n2")["link"]
    cluster.nodes[1].kill()
    cluster.nodes[1].start()
    with open(link, "r+b", buffering=0) as device:
        device.write(b"x" * 4096)
        os.fsync(device.fileno())
    machine.detach(volume)
    with Client(cluster.first.uri(volume)) as client:
        assert client.read(0, 4096) == b"x" * 4096


@pytest.mark.parametrize("again", ["detach", "attach"])
def test_a_device_whose_program_has_ended_is_given_back(machine, volume, again):
    """As when the container ends that the program ran in: it takes its file along, and the kernel keeps the device."""
    device = Path(os.path.realpath(machine.attach(volume)["link"]))
    backed = Path("/sys/block") / device.name / "loop"
    (pid,) = (int(file.read_text()) for file in machine.state.glob("*/pid"))
    with open(device, "rb"):
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: (backed / "backing_file").read_text() in ("/\n", "/nbd\n"), 30, "the end of the file")
    if again == "attach":
        with open(machine.attach(volume)["link"], "rb") as made_anew:
            assert made_anew.read(4096) == bytes(4096)
    machine.detach(volume)
    wait_until(lambda: not backed.exists(), 30, "the device without a file")
    assert list(machine.state.glob("*/")) == []


def test_what_is_missing_is_named(cluster, machine, volume):
    assert "--nvme" in machine.refused("attach", volume, "--via", "nvme")
    assert "no node n9" in machine.refused("attach", volume, "--node", "n9")
    assert "not-there" in machine.refused("attach", "not-there")
    unreachable = run_cli("attach", volume, "--state", machine.state, api="http://127.0.0.1:1")
    assert unreachable.returncode == 6 and "127.0.0.1:1" in unreachable.stderr
    plain = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", *map(str, [cluster.program, "attach", volume])],
        capture_output=True,
        text=True,
    )
    assert plain.returncode == 1 and "root" in plain.stderr, plain.stderr


def test_a_device_that_is_there_is_made_read_only(machine, volume):
    device = machine.attach(volume)["device"]
    flag = Path("/sys/class/block") / Path(device).name / "ro"
    assert flag.read_text().strip() == "0"
    # As whoever was ended before the device was made read-only: the command is repeated.
    for _ in range(2):
        assert machine.attach(volume, "--read-only")["device"] == device
        assert flag.read_text().strip() == "1"
    # Whoever gets the device next may write to it.
    machine.detach(volume)
    wait_until(lambda: flag.read_text().strip() == "0", 10, "the device to be given back as it was")
