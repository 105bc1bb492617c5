"""File systems on volumes: mounted, written to, taken down with nothing left; mounts that others don't see."""

import os
import subprocess
import sys

import pytest

from . import filesystems
from .targets.base import Place, make_files
from .targets.nbd import NbdkitMemory

pytestmark = [pytest.mark.alone, pytest.mark.skipif(os.geteuid() != 0, reason="needs root for loop devices and mounts")]

SIZE = 64 * 2**20


def use_and_take_down(mounted):
    mounted.start()
    try:
        assert os.path.ismount(mounted.folder)
        (mounted.folder / "file").write_bytes(b"x" * 100_000)
    finally:
        mounted.stop()
    assert not os.path.ismount(mounted.folder)
    attached = subprocess.run(["losetup", "--list", "--noheadings", "--output", "BACK-FILE"], capture_output=True)
    assert str(mounted.path).encode() not in attached.stdout


def test_on_a_file(tmp_path):
    (image,) = make_files(tmp_path, 1, SIZE)
    use_and_take_down(filesystems.Mounted(tmp_path / "mount", path=image))


def test_on_an_nbd_export(tmp_path):
    target = NbdkitMemory(Place(tmp_path, 1, SIZE))
    try:
        target.start()
        mounted = filesystems.Mounted(tmp_path / "mount", uri=target.uri())
        use_and_take_down(mounted)
        assert not os.path.ismount(mounted.fuse_folder) and not mounted.fuse.alive
    finally:
        target.stop()


def test_a_mount_that_fails_leaves_no_device(tmp_path):
    image = tmp_path / "too-small"
    image.write_bytes(bytes(4096))
    mounted = filesystems.Mounted(tmp_path / "mount", path=image)
    with pytest.raises(AssertionError, match="mkfs.ext4"):
        mounted.start()
    mounted.stop()
    assert not subprocess.run(["losetup", "--associated", str(image)], capture_output=True).stdout


def test_private_mounts_are_seen_by_nobody_else(tmp_path):
    child = (
        "import subprocess, sys; from tools.lab import filesystems; filesystems.keep_mounts_private();"
        "subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', sys.argv[1]], check=True); print('up', flush=True); input()"
    )
    command = [sys.executable, "-c", child, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        assert not os.path.ismount(tmp_path)
        process.communicate("\n")
    assert process.returncode == 0
