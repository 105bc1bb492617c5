"""Real file systems on a volume, through nbdfuse and a loop device: made, filled, checked, mounted again, compared."""

import os

import pytest

from tools.harness.cluster import ROOT
from tools.harness.filesystems import CHECK, MAKE, Attached, kernel_mounts, tree_digests
from tools.harness.run import run

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.mark.parametrize("kind", ["ext4", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("xfs", "btrfs"))])
def test_file_system_keeps_its_files(shared_cluster, volume, folder, kind):
    if not os.path.exists("/dev/fuse") or not os.path.exists("/dev/loop-control"):
        pytest.skip("this machine has no FUSE or no loop devices")
    if not kernel_mounts(kind):
        pytest.skip(f"this kernel has no {kind}")
    first = Attached(shared_cluster.first.uri(volume), folder)
    try:
        run(*MAKE[kind], first.device)
        first.mount()
        for part in ("crates", "tests", "tools", "scripts"):
            run("cp", "-r", ROOT / part, first.point / part)
        run("dd", "if=/dev/urandom", f"of={first.point}/large", "bs=1M", "count=48", "status=none")
        run("rm", "-r", first.point / "tools")
        before = tree_digests(first.point)
        assert len(before) > 50
        first.unmount()
        run(*CHECK[kind], first.device)
    finally:
        first.close()
    # Through another node, so that nothing can come from this connection's caches.
    again = Attached(shared_cluster.nodes[1].uri(volume, tcp=True), folder)
    try:
        run(*CHECK[kind], again.device)
        again.mount()
        assert tree_digests(again.point) == before
        again.unmount()
    finally:
        again.close()
