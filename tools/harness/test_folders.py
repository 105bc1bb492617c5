import os
import subprocess
import sys
import time

from . import folders


def old(path):
    """Makes a folder look as if it had been made long ago."""
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))
    return path


def test_a_folder_is_held_by_its_maker_until_it_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("AZEKURA_TEST_DIR", str(tmp_path))
    make = "from tools.harness.folders import new_folder; print(new_folder(), flush=True); input()"
    maker = subprocess.Popen([sys.executable, "-c", make], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    made = old(tmp_path / maker.stdout.readline().strip())
    assert folders.abandoned(tmp_path) == []
    maker.kill()
    maker.wait()
    assert folders.abandoned(tmp_path) == [made]


def test_a_new_folder_removes_abandoned_ones_and_tells(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AZEKURA_TEST_DIR", str(tmp_path))
    left = tmp_path / "azk-bench-left"
    left.mkdir()
    (left / "log").write_bytes(bytes(4096))
    old(left)
    mine = folders.new_folder()
    assert list(tmp_path.iterdir()) == [mine]
    assert str(left) in capsys.readouterr().err


def test_what_a_process_names_and_what_is_young_or_of_others_stays(tmp_path):
    named, young, other = (tmp_path / name for name in ("azt-named", "azk-young", "mine"))
    for path in (named, young, other):
        path.mkdir()
    old(named)
    old(other)
    code = "print(flush=True); input()"
    command = [sys.executable, "-c", code, str(named / "n1")]
    node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    # Only then is its command line to be seen for sure.
    node.stdout.readline()
    try:
        assert folders.abandoned(tmp_path) == []
    finally:
        node.kill()
        node.wait()
    assert folders.abandoned(tmp_path) == [named]


def test_too_small_a_disk_is_told_before_anything_is_built(tmp_path):
    free = folders.shutil.disk_usage(tmp_path).free
    enough = {"build_bytes": 2**20, "test_bytes": free // 2}
    build = tmp_path / "target"
    assert folders.lacking_for_all(build, tmp_path, **enough) is None
    assert "AZEKURA_TEST_DIR" in folders.lacking_for_all(build, tmp_path, **enough | {"build_bytes": free})
    build.mkdir()
    (build / "binary").write_bytes(bytes(2**20))
    # What was built has its room, and the rest of the disk is the tests'.
    assert folders.lacking_for_all(build, tmp_path, build_bytes=2**20, test_bytes=free - 2**28) is None
    assert folders.lacking_for_all(build, tmp_path, build_bytes=2**20, test_bytes=free * 2) is not None
