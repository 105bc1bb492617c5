"""The NVMe/TCP door as Linux's own initiator sees it: Debian's kernel and nvme-cli in a virtual machine. Not part of
the other tests: `./dev guest` runs it."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tools.harness.cluster import HOST
from tools.harness.guest import HOST_IN_GUEST, Guest
from tools.harness.nvme import (
    PREEMPT_AND_ABORT,
    REGISTER,
    RESV_ACQUIRE,
    RESV_REGISTER,
    WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
    controller,
    io_queue,
)
from tools.harness.process import free_port, wait_until

MIB = 2**20
PREFIX = "nqn.2026-01.io.azekura:"
KERNEL = os.environ.get("AZEKURA_GUEST_KERNEL", "")
# The kernel's own calls for reservations (linux/pr.h): number of the ioctl, and the numbers of its structure.
PR_REGISTER, PR_RESERVE, PR_RELEASE = (0x401870C8, "QQLL"), (0x401070C9, "QLL"), (0x401070CA, "QLL")
PR_PREEMPT, PR_CLEAR = (0x401870CB, "QQLL"), (0x401070CD, "QLL")
CONFLICT = 0x083

pytestmark = pytest.mark.skipif(not KERNEL, reason="AZEKURA_GUEST_KERNEL names no unpacked kernel (./dev guest does)")


@pytest.fixture(scope="module")
def node(module_cluster):
    """A node of several shards with the door, and volumes behind it."""
    cluster = module_cluster(start=False, nodes=1)
    port = free_port()
    cluster.nodes[0].options = ["--nvme", f"{HOST}:{port}", "--shards", "3", "--shards-without-devices"]
    cluster.start()
    cluster.create_volume("vol1", "256MiB", copies=1)
    cluster.create_volume("Vol_2", "64MiB", copies=1)
    cluster.create_volume("large", "64MiB", copies=1, block=4096)
    cluster.nvme_port = port
    return cluster


@pytest.fixture(scope="module")
def guest(node, tmp_path_factory):
    started = time.monotonic()
    perl = {shutil.which("perl"): "/usr/bin/perl"}
    machine = Guest(Path(KERNEL), tmp_path_factory.mktemp("guest"), programs=perl)
    print(f"the guest is up after {time.monotonic() - started:.1f} s")
    machine.port = node.nvme_port
    yield machine
    machine.stop()


@pytest.fixture(autouse=True)
def nothing_left(guest):
    """A test that has failed leaves nothing to the next."""
    yield
    guest.run("cd /; umount /mnt 2>/dev/null; nvme disconnect-all")


def target(guest):
    return f"-t tcp -a {HOST_IN_GUEST} -s {guest.port}"


def devices(guest):
    """The block devices of namespaces, without those of paths."""
    return guest.run("ls /dev | grep -E '^nvme[0-9]+n[0-9]+$' || true").split()


def connect(guest, volume="vol1", options=""):
    before = set(devices(guest))
    guest.run(f"nvme connect {target(guest)} -n {PREFIX}{volume} {options}")
    wait_until(lambda: set(devices(guest)) - before, 20, "the namespace")
    return (set(devices(guest)) - before).pop()


def disconnect(guest, volume="vol1"):
    assert "disconnected 1" in guest.run(f"nvme disconnect -n {PREFIX}{volume}")
    wait_until(lambda: not devices(guest), 20, "the namespace to be gone")


def test_discovery(guest):
    found = json.loads(guest.run(f"nvme discover {target(guest)} -o json"))
    names = {record["subnqn"]: record for record in found["records"]}
    assert set(names) == {PREFIX + "vol1", PREFIX + "Vol_2", PREFIX + "large"}
    record = names[PREFIX + "vol1"]
    assert (record["trtype"], record["subtype"], record["trsvcid"]) == ("tcp", "nvme subsystem", str(guest.port))


def test_blocks_of_4_kib(guest):
    device = connect(guest, "large")
    [listed] = json.loads(guest.run("nvme list -o json"))["Devices"]
    assert (listed["PhysicalSize"], listed["SectorSize"]) == (64 * MIB, 4096)
    names = ["logical_block_size", "physical_block_size", "minimum_io_size", "discard_granularity"]
    shown = [guest.run(f"cat /sys/block/{device}/queue/{name}") for name in names]
    assert shown == ["4096"] * 4, shown
    guest.run(f"mkfs.ext4 -q -F /dev/{device} && mount /dev/{device} /mnt", within_s=120)
    guest.run("dd if=/dev/urandom of=/mnt/a bs=1M count=8 2>/dev/null && sync")
    digest = guest.run("sha256sum </mnt/a")
    guest.run("umount /mnt")
    disconnect(guest, "large")
    device = connect(guest, "large")
    guest.run(f"e2fsck -fn /dev/{device} && mount /dev/{device} /mnt", within_s=60)
    assert guest.run("sha256sum </mnt/a") == digest
    guest.run("umount /mnt")
    disconnect(guest, "large")


def test_what_it_says_of_itself(guest):
    device = connect(guest)
    listed = json.loads(guest.run("nvme list -o json"))["Devices"]
    assert [(one["ModelNumber"], one["PhysicalSize"], one["SectorSize"]) for one in listed] == [
        ("Azekura volume", 256 * MIB, 512)
    ]
    controller = json.loads(guest.run(f"nvme id-ctrl /dev/{device} -o json"))
    assert (controller["subnqn"], controller["mdts"], controller["nn"]) == (PREFIX + "vol1", 8, 1)
    namespace = json.loads(guest.run(f"nvme id-ns /dev/{device} -o json"))
    assert (namespace["nsze"], namespace["nmic"], namespace["npwg"]) == (256 * MIB // 512, 1, 7)
    first = guest.run(f"cat /sys/block/{device}/wwid")
    assert first.startswith("uuid."), first
    for command in ["smart-log", "error-log", "fw-log", "effects-log", "changed-ns-list-log", "ns-descs"]:
        guest.run(f"nvme {command} /dev/{device}")
    controller = "$(ls -d /dev/nvme* | grep -E 'nvme[0-9]+$')"
    # CSTS, which is ready.
    assert "value: 1" in guest.run(f"nvme get-property {controller} --offset=0x1c")
    for feature in ["0x1", "0x2", "0x4", "0x5", "0x7", "0xb", "0xf", "0x16"]:
        guest.run(f"nvme get-feature /dev/{device} -f {feature}")
    assert guest.run(f"cat /sys/block/{device}/queue/minimum_io_size") == "4096"
    disconnect(guest)
    assert guest.run(f"cat /sys/block/{connect(guest)}/wwid") == first
    disconnect(guest)


@pytest.mark.parametrize("options", ["", "--hdr-digest --data-digest", "--disable-sqflow", "-i 1 -Q 16"])
def test_a_file_system(guest, options):
    """What was written is there after unmounting and connecting again, whatever was agreed on."""
    device = connect(guest, options=options)
    guest.run(f"mkfs.ext4 -q -F /dev/{device}", within_s=120)
    guest.run(f"mount /dev/{device} /mnt")
    guest.run("dd if=/dev/urandom of=/tmp/a bs=64k count=512 2>/dev/null; cp /tmp/a /mnt/a; cp /bin/busybox /mnt/b")
    guest.run("cd /mnt && sha256sum a b > sums && sync; cd /")
    guest.run("umount /mnt")
    disconnect(guest)
    device = connect(guest, options=options)
    guest.run(f"e2fsck -f -n /dev/{device}", within_s=120)
    guest.run(f"mount /dev/{device} /mnt && cd /mnt && sha256sum -c sums; cd /")
    guest.run("rm /mnt/a; sync; fstrim /mnt; umount /mnt")
    disconnect(guest)


def test_discards_and_zeroes_read_as_zeros(guest):
    device = connect(guest)
    zero, discard = f"nvme write-zeroes /dev/{device} -s 2048 -c 4095", f"nvme dsm /dev/{device} --ad -s 2048 -b 4096"
    for command in [zero, discard]:
        guest.run(f"dd if=/dev/urandom of=/dev/{device} bs=1M count=8 oflag=direct 2>/dev/null")
        # 4096 blocks of 512 bytes: 2 MiB, from 1 MiB on.
        guest.run(command)
        read = f"dd if=/dev/{device} bs=1M skip=1 count=2 iflag=direct 2>/dev/null"
        assert guest.run(f"{read} | tr -d '\\0' | wc -c") == "0", command
    guest.run(f"nvme verify /dev/{device} -s 0 -c 65535")
    assert "LBA" in guest.run(f"nvme read /dev/{device} -s 99999999 -c 0 -z 512 2>&1", fails=True)
    disconnect(guest)


def test_a_volume_that_grows_is_noticed(node, guest):
    device = connect(guest, "Vol_2")
    assert guest.run(f"cat /sys/block/{device}/size") == str(64 * MIB // 512)
    node.cli("volume", "resize", "Vol_2", "128MiB")
    wait_until(
        lambda: guest.run(f"cat /sys/block/{device}/size") == str(128 * MIB // 512), 20, "the guest to see the new size"
    )
    guest.run(f"dd if=/dev/urandom of=/dev/{device} bs=1M seek=127 count=1 oflag=direct 2>/dev/null")
    disconnect(guest, "Vol_2")


@pytest.fixture(scope="module")
def shared(node):
    """A volume for several hosts."""
    node.create_volume("shared", "64MiB", copies=1, shared=True)
    return "shared"


class Other:
    """A second host, outside of the guest."""

    def __init__(self, node):
        address = f"{HOST}:{node.nvme_port}"
        self.admin = controller(address, "shared")
        self.queue = io_queue(address, "shared", self.admin, 1)

    def preempt(self, victim, kind):
        assert self.queue.reserve(RESV_REGISTER, REGISTER, 0, 0xB) == 0
        assert self.queue.reserve(RESV_ACQUIRE, PREEMPT_AND_ABORT, 0xB, victim, kind) == 0

    def close(self):
        self.queue.close()
        self.admin.close()


def writes(guest, device, fails=False):
    return guest.run(f"dd if=/dev/zero of=/dev/{device} bs=4k count=1 oflag=direct 2>&1", fails=fails)


def reported(guest, device):
    """The kind of the reservation, and of each registrant its key and whether it holds it."""
    report = json.loads(guest.run(f"nvme resv-report /dev/{device} -n 1 --eds -o json"))
    assert (report["ptpls"], report["regctl"]) == (1, len(report["regctlext"]))
    return report["rtype"], sorted((one["rkey"], one["rcsts"]) for one in report["regctlext"])


def test_reservations_by_nvme_cli(node, guest, shared):
    device = connect(guest, shared)
    assert json.loads(guest.run(f"nvme id-ns /dev/{device} -o json"))["rescap"] == 0xFF
    resv = lambda command, fails=False: guest.run(f"nvme resv-{command}", fails=fails)  # noqa: E731
    of = f"/dev/{device} -n 1"
    assert reported(guest, device) == (0, [])
    resv(f"register {of} --rrega=0 --nrkey=0xa")
    resv(f"acquire {of} --racqa=0 --crkey=0xa --rtype=3")
    assert reported(guest, device) == (3, [(0xA, 1)])
    resv(f"acquire {of} --racqa=0 --crkey=0xc --rtype=3 2>&1", fails=True)
    writes(guest, device)
    other = Other(node)
    other.preempt(0xA, WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
    assert reported(guest, device) == (3, [(0xB, 1)])
    writes(guest, device, fails=True)
    guest.run(f"dd if=/dev/{device} of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null")
    told = json.loads(guest.run(f"nvme resv-notif-log /dev/{device} -o json"))
    assert told["rn_log_type"] == 1, told
    resv(f"register {of} --rrega=2 --iekey --nrkey=0xa")
    writes(guest, device)
    resv(f"acquire {of} --racqa=1 --crkey=0xa --prkey=0xb --rtype=3")
    resv(f"release {of} --rrela=0 --crkey=0xa --rtype=3")
    resv(f"register {of} --rrega=1 --crkey=0xa")
    assert reported(guest, device) == (0, [])
    assert other.queue.registrants() == (0, [])
    for feature in ["0x82", "0x83"]:
        guest.run(f"nvme get-feature {of} -f {feature}")
    other.close()
    disconnect(guest, shared)


def test_reservations_by_the_kernels_own_calls(node, guest, shared):
    device = connect(guest, shared)

    def call(command, *numbers):
        """What the kernel says: 0, or the status of the command without the bit that it is not to be tried again."""
        number, structure = command
        program = 'open(F, "+<", shift); $r = ioctl(F, shift, pack(shift, @ARGV)); print defined $r ? $r + 0 : "$!"'
        arguments = " ".join(str(one) for one in [number, structure, *numbers])
        return int(guest.run(f"perl -e '{program}' /dev/{device} {arguments}")) & 0x7FF

    assert call(PR_REGISTER, 0, 0xA, 0, 0) == 0
    assert call(PR_RESERVE, 0xC, 1, 0) == CONFLICT, "another key"
    assert call(PR_RESERVE, 0xA, 1, 0) == 0
    assert reported(guest, device) == (1, [(0xA, 1)])
    other = Other(node)
    assert other.queue.write_status(0, bytes(512)) == CONFLICT
    other.preempt(0xA, 1)
    writes(guest, device, fails=True)
    assert call(PR_REGISTER, 0, 0xA, 1, 0) == 0
    assert call(PR_PREEMPT, 0xA, 0xB, 1, 0) == 0
    assert reported(guest, device) == (1, [(0xA, 1)])
    writes(guest, device)
    assert call(PR_RELEASE, 0xA, 1, 0) == 0
    assert reported(guest, device) == (0, [(0xA, 0)])
    assert call(PR_CLEAR, 0xA, 0, 0) == 0
    assert reported(guest, device) == (0, [])
    other.close()
    disconnect(guest, shared)


def test_a_restart_of_the_node_is_survived(node, guest):
    """What is written while the node is away waits, and lands when it is there again."""
    device = connect(guest, options="--reconnect-delay=1 --ctrl-loss-tmo=120 --keep-alive-tmo=3")
    for name in ["before", "after"]:
        guest.run(f"dd if=/dev/urandom of=/tmp/{name} bs=1M count=8 2>/dev/null")
    guest.run(f"dd if=/tmp/before of=/dev/{device} bs=1M oflag=direct 2>/dev/null")
    node.nodes[0].kill()
    guest.run(f"dd if=/tmp/after of=/dev/{device} bs=1M seek=8 oflag=direct 2>/tmp/dd & sleep 3")
    node.nodes[0].start()
    guest.run("wait", within_s=120)
    for name, skip in [("before", 0), ("after", 8)]:
        read = f"dd if=/dev/{device} bs=1M skip={skip} count=8 iflag=direct 2>/dev/null"
        assert guest.run(f"{read} | sha256sum | cut -c1-64") == guest.run(f"sha256sum /tmp/{name} | cut -c1-64")
    disconnect(guest)


def test_idle_hosts_live(guest):
    """Keep Alive goes on, and nobody is closed for silence."""
    device = connect(guest, options="--keep-alive-tmo=2")
    state = "cat /sys/class/nvme/nvme*/state"
    for _ in range(4):
        time.sleep(2)
        assert guest.run(state) == "live"
    guest.run(f"dd if=/dev/{device} of=/dev/null bs=1M count=1 iflag=direct 2>/dev/null")
    disconnect(guest)
