"""The ./dev command itself: up twice, data over down and up, its safety catches."""

import os
import subprocess

import pytest

from tools.harness.cluster import ROOT, binary
from tools.harness.nbd import Client
from tools.harness.process import free_port

MARK = b"kept over down and up" + bytes(491)


@pytest.fixture
def dev(folder):
    """Runs ./dev with a data folder and ports of this test's own; stops its cluster afterwards."""
    environment = {
        **os.environ,
        "AZEKURA_DEV_DIR": str(folder / "dev"),
        "AZEKURA_DEV_PORT": str(free_port_range()),
        "AZEKURA_DEV_NBD_PORT": str(free_port()),
        "AZEKURA_BIN": str(binary()),
        "NO_COLOR": "1",
    }

    def call(*words, check=True, **more):
        done = subprocess.run(
            [ROOT / "dev", *words],
            capture_output=True,
            text=True,
            timeout=300,
            env={**environment, **more},
            stdin=subprocess.DEVNULL,
        )
        assert not check or done.returncode == 0, f"./dev {' '.join(words)}\n{done.stdout}{done.stderr}"
        return done

    yield call
    call("down", check=False)


def free_port_range():
    """A base whose hundred ports are most likely free; ./dev up reports a clash by name."""
    return free_port() // 200 * 100


def test_up_twice_down_and_up(dev):
    first = dev("up", "--size", "1GiB")
    uri = dev("uri").stdout.strip()
    assert uri in first.stdout
    with Client(uri) as client:
        assert client.size == 2**30
        client.write(8192, MARK)
    processes = process_ids(dev)
    second = dev("up")
    assert "nothing changed" in second.stderr
    assert process_ids(dev) == processes
    with Client(dev("uri", "--tcp", "--node", "2").stdout.strip()) as client:
        assert client.read(8192, len(MARK)) == MARK
    dev("down")
    assert "nothing was running" in dev("down").stderr
    assert dev("status", check=False).returncode != 0
    dev("up")
    with Client(uri) as client:
        assert client.read(8192, len(MARK)) == MARK
    refused = dev("up", "--etcd", check=False)
    assert refused.returncode != 0 and "wipe" in refused.stderr
    dev("down")


def test_up_with_etcd(dev):
    dev("up", "--etcd", "--size", "1GiB")
    assert "etcd" in dev("status").stdout
    with Client(dev("uri").stdout.strip()) as client:
        client.write(0, MARK)
    dev("down")
    dev("up")
    with Client(dev("uri", "--node", "3").stdout.strip()) as client:
        assert client.read(0, len(MARK)) == MARK
    dev("down")


def process_ids(dev):
    lines = dev("status").stdout.splitlines()[1:4]
    return [line.split()[1] for line in lines]


def test_down_leaves_other_processes_alone(dev, folder):
    """A pid file that names somebody else's process (after a reboot, say) is not believed."""
    dev("up", "--size", "1GiB")
    dev("down")
    innocent = subprocess.Popen(["sleep", "300"])
    try:
        start = open(f"/proc/{innocent.pid}/stat").read().rsplit(")", 1)[1].split()[19]
        for line in (f"{innocent.pid} {start}", f"{innocent.pid} 1", f"{innocent.pid}", "", "no number", f"1 {start}"):
            (folder / "dev" / "run" / "n1.pid").write_text(line + "\n")
            dev("down")
            assert innocent.poll() is None, f"down killed a stranger named by {line!r}"
    finally:
        innocent.kill()
        innocent.wait()


def test_a_port_in_use_is_named(dev, folder):
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        refused = dev("up", "--size", "1GiB", check=False, AZEKURA_DEV_NBD_PORT=str(port))
    assert refused.returncode != 0
    assert str(port) in refused.stderr and "AZEKURA_DEV_NBD_PORT" in refused.stderr


def test_wipe_asks_and_deletes_only_its_own(dev, folder):
    other = folder / "precious"
    other.mkdir()
    (other / "file").write_text("x")
    refused = dev("wipe", "--yes", check=False, AZEKURA_DEV_DIR=str(other))
    assert refused.returncode != 0 and (other / "file").exists()
    dev("up", "--size", "1GiB")
    assert dev("wipe", check=False).returncode != 0, "deleted without being asked twice"
    dev("wipe", "--yes")
    assert not (folder / "dev").exists()
    assert "nothing to delete" in dev("wipe").stderr


@pytest.mark.parametrize("command", "up uri status logs down wipe test bench".split())
def test_every_command_explains_itself(dev, command):
    text = dev(command, "--help").stdout
    assert text.startswith(f"usage: ./dev {command}")


@pytest.mark.parametrize(
    "words",
    [
        ["frob"],
        ["up", "--frob"],
        ["up", "--size", "7"],
        ["up", "--size"],
        ["uri", "--node", "4"],
        ["test", "--only", "x"],
    ],
)
def test_wrong_words_are_errors(dev, words):
    done = dev(*words, check=False)
    assert done.returncode == 1 and done.stderr.startswith("dev: ")
