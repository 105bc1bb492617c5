"""A volume by several nodes at a time, as Linux's own native multipath has it: Debian's kernel in a virtual machine, a
path a node, of which nodes are killed and stand still under fio. Not part of the other tests: `./dev guest` runs it."""

import os
import shutil
import time
from pathlib import Path

import pytest

from tools.harness.cluster import HOST
from tools.harness.guest import HOST_IN_GUEST, Guest
from tools.harness.paths import stop_writers
from tools.harness.process import free_port, wait_until

PREFIX = "nqn.2026-01.io.azekura:"
KERNEL = os.environ.get("AZEKURA_GUEST_KERNEL", "")
FIO = "fio --name=job --ioengine=libaio --direct=1 --thread --minimal --output=/tmp/fio"
VERIFY = "--rw=randwrite --bs=4k --iodepth=8 --size=96M --verify=crc32c --verify_backlog=256 --time_based --runtime=110"
DONE_WITHIN_S = 300

pytestmark = pytest.mark.skipif(not KERNEL, reason="AZEKURA_GUEST_KERNEL names no unpacked kernel (./dev guest does)")


@pytest.fixture(scope="module")
def cluster(module_cluster):
    """Three nodes with the door, and a volume that is not shared."""
    cluster = module_cluster(start=False, config="etcd", nodes=3)
    cluster.ports = [free_port() for _ in cluster.nodes]
    for node, port in zip(cluster.nodes, cluster.ports, strict=True):
        node.options = ["--nvme", f"{HOST}:{port}"]
    cluster.start()
    cluster.create_volume("vol1", "128MiB")
    cluster.wait_healthy()
    return cluster


@pytest.fixture(scope="module")
def guest(cluster, tmp_path_factory):
    machine = Guest(Path(KERNEL), tmp_path_factory.mktemp("guest"), programs={shutil.which("fio"): "/usr/bin/fio"})
    for port in cluster.ports:
        options = "--reconnect-delay=1 --ctrl-loss-tmo=600 --keep-alive-tmo=5"
        machine.run(f"nvme connect -t tcp -a {HOST_IN_GUEST} -s {port} -n {PREFIX}vol1 {options}")
    wait_until(lambda: states(machine) == ["live"] * 3, 30, "three paths")
    yield machine
    machine.run("nvme disconnect-all")
    machine.stop()


def states(guest):
    return guest.run("cat /sys/class/nvme/nvme*/state").split()


def device(guest):
    """The one block device of all paths."""
    found = guest.run("ls /dev | grep -E '^nvme[0-9]+n[0-9]+$'").split()
    assert len(found) == 1, f"the kernel did not put the paths together: {found}"
    return f"/dev/{found[0]}"


def test_fio_goes_on_when_nodes_are_killed_and_stand_still(cluster, guest):
    job = f"{FIO} --filename={device(guest)} {VERIFY} > /tmp/said 2>&1"
    # Linux 6.1 sends to NVMe's targets from the thread that writes, and does not say MSG_NOSIGNAL: where the other end
    # is gone, that thread gets SIGPIPE, which servers ignore and fio does not.
    guest.run(f"(trap '' PIPE; {job} && echo fine || echo failed $?) > /tmp/done & sleep 2")
    for _ in stop_writers(cluster, within_s=60):
        time.sleep(5)
    wait_until(lambda: guest.run("cat /tmp/done") != "", DONE_WITHIN_S, "fio")
    assert guest.run("cat /tmp/done") == "fine", guest.run("cat /tmp/said /tmp/fio; dmesg | tail -40")
    assert guest.run("dmesg | grep -E 'I/O error|Buffer I/O' || true") == ""
