"""Limits of volumes: requests a second and bytes a second, held and changed under load."""

import json
import subprocess
import urllib.request

import pytest

from tools.harness.cluster import CliError

pytestmark = pytest.mark.alone

MIB = 2**20
SECONDS = 6
# A limit lets in what a tenth of a second would have, at once; fio's clock and the node's are not the same.
LEAST, MOST = 0.93, 1.05


def load(cluster, volume, rw="randrw", size="4k", depth=32, jobs=1, seconds=SECONDS, more=()):
    """Starts fio on the volume."""
    words = ["fio", "--name=load", "--ioengine=nbd", f"--uri={cluster.first.uri(volume)}", f"--rw={rw}", f"--bs={size}"]
    words += [f"--iodepth={depth}", f"--numjobs={jobs}", "--size=64m", "--time_based=1", f"--runtime={seconds}"]
    words += ["--group_reporting=1", "--randrepeat=0", "--output-format=json", *more]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def figures(process):
    """What fio has counted: requests a second, and bytes a second."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    job = json.loads(out[out.index("{") :])["jobs"][0]
    both = [job["read"], job["write"]]
    return sum(kind["iops"] for kind in both), sum(kind["bw_bytes"] for kind in both)


def metric(cluster, volume, name):
    """What the first node says of the volume."""
    with urllib.request.urlopen(f"{cluster.first.api}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    [line] = [line for line in text.splitlines() if line.startswith(f'azekura_volume_{name}{{volume="{volume}"}} ')]
    return float(line.split()[-1])


def limited(cluster, volume, *words):
    return cluster.json("volume", "limit", volume, *words)["limits"]


@pytest.fixture
def other_volume(shared_cluster):
    """Makes volumes by the command line's arguments, which are deleted after the test."""
    names = []

    def make(name, *arguments):
        names.append(name)
        return shared_cluster.json("volume", "create", name, *arguments)

    yield make
    made = [volume["name"] for volume in shared_cluster.json("volume", "list")]
    for name in set(names) & set(made):
        shared_cluster.delete_volume(name)


def test_requests_a_second_are_held_over_all_connections(shared_cluster, volume):
    assert limited(shared_cluster, volume, "--iops", "400") == {"iops": 400}
    iops, _ = figures(load(shared_cluster, volume, jobs=4))
    assert LEAST * 400 <= iops <= MOST * 400
    # Nearly all of them waited, and nearly all of the time some did.
    assert metric(shared_cluster, volume, "throttled_requests_total") > LEAST * 400 * SECONDS / 2
    assert SECONDS / 2 < metric(shared_cluster, volume, "throttled_seconds_total")


def test_bytes_a_second_are_held_whatever_the_size_of_requests(shared_cluster, volume):
    limited(shared_cluster, volume, "--bandwidth", "8MiB")
    for size, depth in [("4k", 32), ("1m", 2)]:
        _, rate = figures(load(shared_cluster, volume, size=size, depth=depth))
        assert LEAST * 8 * MIB <= rate <= MOST * 8 * MIB + 2 * MIB / SECONDS, size


def test_a_limit_comes_and_goes_under_load(shared_cluster, volume):
    process = load(shared_cluster, volume, seconds=4)
    limited(shared_cluster, volume, "--iops", "10")
    limited(shared_cluster, volume, "--iops", "2000", "--burst", "1s")
    assert "2000 requests/s, bursts of 1s" in shared_cluster.cli("volume", "show", volume)
    assert shared_cluster.json("volume", "limit", volume, "--off").get("limits") is None
    iops, _ = figures(process)
    assert iops > 10 * MOST, "the first limit has ended"
    assert "is not limited any more" in shared_cluster.cli("volume", "limit", volume, "--off")
    assert "limited" not in shared_cluster.cli("volume", "show", volume)


def test_other_volumes_are_not_held_up_by_one_that_waits(shared_cluster, volume, other_volume):
    other = other_volume("other", "64MiB")["name"]
    limited(shared_cluster, volume, "--iops", "50")
    greedy = load(shared_cluster, volume, depth=128, seconds=8)
    free, _ = figures(load(shared_cluster, other, depth=1, seconds=4))
    assert free > 200, "it is not limited"
    held, _ = figures(greedy)
    assert LEAST * 50 <= held <= MOST * 50 + 2


def test_what_was_saved_may_be_spent_at_once(shared_cluster, volume):
    limited(shared_cluster, volume, "--iops", "200", "--burst", "1h")
    # What was made just now has saved nothing but the time since.
    _, _ = figures(load(shared_cluster, volume, seconds=3))
    iops, _ = figures(load(shared_cluster, volume, seconds=SECONDS, more=["--startdelay=5"]))
    assert iops >= 200 * LEAST + 200 * 3 / SECONDS, "five seconds were saved"


def test_limits_of_a_new_volume_and_of_its_clones(shared_cluster, other_volume):
    limits = {"iops": 500, "bytes_per_second": 10 * MIB, "burst_seconds": 30}
    words = ["--iops", "500", "--bandwidth", "10MiB", "--burst", "30s"]
    assert other_volume("source", "64MiB", *words)["limits"] == limits
    assert shared_cluster.json("volume", "show", "source")["limits"] == limits
    shared_cluster.cli("snapshot", "create", "source@s")
    assert other_volume("clone", "--from", "source@s")["limits"] == limits, "a clone is as its source is"
    assert other_volume("third", "--from", "source@s", "--iops", "70")["limits"] == {"iops": 70}


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--iops", "9"], "10 to 10000000"),
        (["--iops", "many"], "--iops"),
        (["--bandwidth", "1KiB"], "1MiB to 100GiB"),
        (["--iops", "100", "--burst", "2h"], "3600 seconds"),
        (["--burst", "10s"], "--burst needs a limit"),
        ([], "--off"),
        (["--iops", "100", "--off"], "cannot be used"),
    ],
)
def test_limits_that_can_not_be_are_refused(shared_cluster, shared_volume, words, expected):
    with pytest.raises(CliError) as refused:
        shared_cluster.cli("volume", "limit", shared_volume, *words)
    assert expected in refused.value.stderr and "panicked" not in refused.value.stderr
    assert shared_cluster.json("volume", "show", shared_volume).get("limits") is None
