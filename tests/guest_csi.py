"""The CSI driver's node part with the kernel's NVMe/TCP and NBD: Debian's kernel in a virtual machine, for whose
containers volumes are mounted. Not part of the other tests: `./dev guest` runs it."""

import json
import os
import re
import shlex
import time
from pathlib import Path

import pytest

from tools.harness.cluster import HOST, binary
from tools.harness.csi import TOOLS, CsiError, Driver, Pod, as_device, mounted
from tools.harness.guest import HOST_IN_GUEST, Guest
from tools.harness.process import free_port, wait_until

KERNEL = os.environ.get("AZEKURA_GUEST_KERNEL", "")
MIB = 2**20
# A call waits for what the kernel does, under an emulated processor.
WITHIN_S = 120
PROGRAMS = {
    binary(): "/bin/azekura",
    TOOLS / "csi-call": "/bin/csi-call",
    "/usr/bin/socat": "/usr/bin/socat",
    # Busybox' own do less.
    **{f"/bin/{name}": f"/bin/{name}" for name in ("mount", "umount")},
    **{f"/sbin/{name}": f"/sbin/{name}" for name in ("blkid", "blockdev", "resize2fs", "dumpe2fs")},
}

pytestmark = pytest.mark.skipif(not KERNEL, reason="AZEKURA_GUEST_KERNEL names no unpacked kernel (./dev guest does)")


class NodePart:
    """The driver's node part in the guest, which asks the cluster's first node."""

    def __init__(self, guest, node, way):
        self.guest, self.node, self.way = guest, node, way
        self.socket, self.log = f"/tmp/csi-{way}", f"/tmp/csi-{way}.log"

    def start(self):
        words = f"csi node --endpoint unix://{self.socket} --node {self.node.name} --state /tmp/state-{self.way}"
        words += f" --api http://127.0.0.1:{self.node.api_port} --attach {self.way}"
        self.guest.run(f"azekura {words} >>{self.log} 2>&1 & echo $! >{self.socket}.pid")
        wait_until(self.answers, 60, f"the driver (its log: {self.log} in the guest)")
        return self

    def answers(self):
        try:
            return self.call("Identity/Probe")["ready"]
        except (AssertionError, CsiError):
            return False

    def kill(self):
        self.guest.run(f"kill -9 $(cat {self.socket}.pid)")

    def call(self, method, **request):
        """One call; CsiError when it is refused."""
        command = f"csi-call {self.socket} {method} {shlex.quote(json.dumps(request))} 2>/tmp/said"
        lines = self.guest.run(f"{command}; echo ended $?", within_s=WITHIN_S).splitlines()
        code = lines.pop().removeprefix("ended ")
        if code == "3":
            raise CsiError(method, json.loads(lines[-1]))
        assert code == "0", f"{method}: {lines}, {self.guest.run('cat /tmp/said')}"
        return json.loads("".join(lines))


class GuestPod(Pod):
    """A volume on its way to a container in the guest, where its folders have the same names."""

    def __init__(self, guest, *arguments, **options):
        super().__init__(*arguments, **options)
        self.guest = guest
        guest.run(f"mkdir -p {self.staging}")

    def write(self, name, text):
        self.guest.run(f"echo {text} >{self.target}/{name} && sync")

    def read(self, name):
        return self.guest.run(f"cat {self.target}/{name}")


@pytest.fixture(scope="module")
def cluster(module_cluster):
    """Three nodes; the guest's machine is the first one's."""
    made = module_cluster(start=False, nodes=3, device_size="2GiB", config="etcd")
    made.first.nvme_port = free_port()
    made.first.options = ["--nvme", f"{HOST}:{made.first.nvme_port}"]
    return made.start()


@pytest.fixture(scope="module")
def controller(cluster):
    driver = Driver(cluster.first, "controller").start()
    yield driver
    driver.stop()


@pytest.fixture(scope="module")
def guest(cluster, tmp_path_factory):
    machine = Guest(Path(KERNEL), tmp_path_factory.mktemp("guest"), programs=PROGRAMS)
    # The node's addresses are loopbacks, and a socket: those of the guest lead there.
    for port in (cluster.first.api_port, cluster.first.nvme_port):
        machine.run(f"nc -ll -p {port} -e nc {HOST_IN_GUEST} {port} >/dev/null 2>&1 &")
    socket = cluster.first.socket
    forward = f"socat UNIX-LISTEN:{socket},fork TCP:{HOST_IN_GUEST}:{cluster.first.nbd_port}"
    machine.run(f"mkdir -p {socket.parent} && {forward} >/dev/null 2>&1 &")
    yield machine
    machine.stop()


@pytest.fixture(scope="module")
def parts(cluster, guest):
    return {way: NodePart(guest, cluster.first, way).start() for way in ("nvme", "nbd")}


@pytest.fixture
def pod(guest, controller, folder):
    """A function that makes containers' volumes; they are gone after the test."""
    pods = []

    def make(part, name, use=None, **create):
        pods.append(GuestPod(guest, controller, part, folder, name, use or mounted(), **create))
        return pods[-1]

    yield make
    for one in reversed(pods):
        one.end()
    assert guest.run("ls /dev | grep -E '^nvme[0-9]+n' || true") == "", "a volume's device is left"


def grow(pod, way, size):
    """The kernel's NBD keeps its size for as long as it is used."""
    if way == "nvme":
        assert pod.grow(size)["capacity_bytes"] == str(size)
        return
    pod.grow_in_the_cluster(size)
    with pytest.raises(CsiError, match="restart the pod") as caught:
        pod.grow_on_the_node(size)
    assert caught.value.code == "FailedPrecondition"
    pod.down()
    pod.up()


def errors_of(guest):
    # What is read ahead fails with its path, and is read again.
    found = "I/O error.*WRITE|Buffer I/O error|EXT4-fs error|blocked for more"
    return guest.run(f"dmesg | grep -E '{found}' || true")


@pytest.mark.parametrize("way", ["nvme", "nbd"])
def test_a_volume_goes_through_its_life(way, guest, parts, controller, pod):
    one = pod(parts[way], f"life-{way}").up()
    source = guest.run(f"grep ' {one.target} ' /proc/mounts").split()[0]
    assert re.fullmatch({"nvme": r"/dev/nvme\d+n\d+", "nbd": r"/dev/nbd\d+"}[way], source)
    one.write("a", "before")
    before = one.total()
    # The guest's root may let it grow while it is mounted, what a container's may not.
    grow(one, way, 512 * MIB)
    assert one.total() > before + 200 * MIB and one.read("a") == "before"
    for step in (one.stage, one.publish):
        step()
    made = controller.call("Controller/CreateSnapshot", source_volume_id=one.volume, name=f"shot-{way}")
    one.write("a", "after")
    content = {"snapshot": {"snapshot_id": made["snapshot"]["snapshot_id"]}}
    restored = pod(parts[way], f"restored-{way}", size=512 * MIB, volume_content_source=content).up()
    assert (restored.read("a"), one.read("a")) == ("before", "after")
    one.down()
    one.up()
    assert one.read("a") == "after"
    controller.call("Controller/DeleteSnapshot", snapshot_id=made["snapshot"]["snapshot_id"])
    assert errors_of(guest) == ""


@pytest.mark.parametrize("way", ["nvme", "nbd"])
def test_a_device_goes_through_its_life(way, guest, parts, pod):
    one = pod(parts[way], f"device-{way}", as_device()).up()
    guest.run(f"dd if=/dev/urandom of=/tmp/block bs=64k count=4 2>/dev/null && dd if=/tmp/block of={one.target} bs=64k")
    assert one.total() == 256 * MIB
    grow(one, way, 512 * MIB)
    assert one.total() == 512 * MIB and guest.run(f"blockdev --getsize64 {one.target}") == str(512 * MIB)
    one.down()
    one.up()
    guest.run(f"dd if={one.target} bs=64k count=4 iflag=direct 2>/dev/null | cmp - /tmp/block")


def test_a_driver_that_is_killed_goes_on(guest, parts, pod):
    one = pod(parts["nvme"], "killed").up()
    one.write("a", "x")
    parts["nvme"].kill()
    one.write("b", "y")
    parts["nvme"].start()
    one.stage()
    one.publish()
    assert one.read("b") == "y" and one.total() > 0


def test_a_container_goes_on_when_its_node_restarts(cluster, guest, parts, pod):
    one = pod(parts["nvme"], "restarted").up()
    one.write("times", "began")
    write = f"date +%s >>{one.target}/times && sync {one.target}/times || echo failed"
    guest.run(f"(while [ ! -e /tmp/enough ]; do {write}; done) >/tmp/writer 2>&1 &")
    for _ in range(2):
        lines = int(guest.run(f"wc -l <{one.target}/times"))
        cluster.first.kill()
        cluster.first.start()
        began = time.monotonic()
        wait_until(lambda: int(guest.run(f"wc -l <{one.target}/times")) > lines + 5, 60, "the writer to go on")
        # The kernel connects again each two seconds; the rest is the emulated machine's.
        print(f"written again {time.monotonic() - began:.1f} s after the start")
        cluster.wait_healthy()
    guest.run("touch /tmp/enough; sleep 2")
    assert guest.run("cat /tmp/writer") == "" and errors_of(guest) == ""
    one.down()
    one.up()
    assert int(guest.run(f"wc -l <{one.target}/times")) > 10


def test_a_volume_that_was_taken_away_is_given_up(cluster, controller, guest, parts, pod):
    """Kubernetes gives a machine up that is only cut off: what it writes does not arrive, and what it has of the volume
    can be cleared away."""
    one = pod(parts["nvme"], "taken").up()
    one.write("a", "x")
    one.unpublish_from_node()
    elsewhere = {"volume_id": one.volume, "node_id": "n2", "volume_capability": one.use}
    controller.call("Controller/ControllerPublishVolume", **elsewhere)
    # The kernel would have who writes wait for ever: he could not be ended, nor his container.
    late = f"dd if=/dev/zero of={one.target}/late bs=4k count=1 conv=fsync 2>/dev/null"
    guest.run(late, fails=True, within_s=WITHIN_S)
    said = "is not published to n1 any more"
    wait_until(lambda: said in guest.run(f"cat {parts['nvme'].log}"), 60, "a line of the driver's about it")
    one.unpublish()
    one.unstage()
    assert guest.run("ls /dev | grep -E '^nvme[0-9]+n' || true") == ""
    controller.call("Controller/ControllerUnpublishVolume", volume_id=one.volume, node_id="n2")
    guest.run("dmesg -c >/dev/null")
    one.up()
    assert one.read("a") == "x"
    assert guest.run(f"ls {one.target}/late 2>&1 || true").startswith("ls:")
