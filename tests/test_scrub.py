"""Cold data goes bad: a scrub finds it before a reader does."""

import json
import random
import urllib.request

import pytest

from tools.harness.cluster import run_cli
from tools.harness.device import find_blocks, forge_block, log_files
from tools.harness.nbd import Client

from .test_damage import BLOCK, damage, write_marked


def test_a_scrub_mends_what_nobody_reads(make_cluster):
    cluster = make_cluster(device_size="512MiB")
    cluster.create_volume(size="64MiB")
    contents = write_marked(cluster)
    cluster.stop()
    damaged = damage(cluster, contents, 1)
    assert cluster.unsound() > 0
    cluster.start()
    result = run_cli("scrub", "vol1", "--wait", "--json", "--api", cluster.first.api)
    assert result.returncode == 1, result.stdout + result.stderr
    found = json.loads(result.stdout)
    assert found["groups"] > 0
    assert found["findings"] == len(damaged), "what is mended was found"
    assert all(block["volume"] == "vol1" and block["mended"] for block in found["found"])
    assert {block["offset_bytes"] // BLOCK for block in found["found"]} <= set(damaged)
    logs = "".join(node.log() for node in cluster.nodes)
    assert "volume vol1, byte 32768: a block of the copy on device" in logs
    assert "written anew" in logs
    status = cluster.json("status")
    assert status["scrubbed"]["findings"] == len(damaged)
    assert any("volume vol1, byte " in note for note in status["notes"])
    again = cluster.json("scrub", "vol1", "--wait")
    assert (again["findings"], again["found"]) == (0, [])
    groups = cluster.json("group", "list")
    assert all(group["scrub"]["deep"]["done"] >= group["scrub"]["deep"]["wanted"] > 0 for group in groups)
    with Client(cluster.first.uri()) as client:
        for number, content in enumerate(contents):
            assert client.read(number * BLOCK, BLOCK) == content
    cluster.stop()
    assert cluster.unsound() == 0


@pytest.mark.alone
def test_what_no_copy_has_is_reported_and_goes_away_when_written(make_cluster):
    cluster = make_cluster(device_size="512MiB")
    cluster.create_volume(size="64MiB")
    contents = write_marked(cluster)
    cluster.stop()
    damage(cluster, contents, 2)
    cluster.start()
    result = run_cli("scrub", "vol1", "--wait", "--json", "--api", cluster.first.api)
    assert result.returncode == 1, result.stdout + result.stderr
    assert json.loads(result.stdout)["findings"] > 0
    logs = "".join(node.log() for node in cluster.nodes)
    assert "volume vol1, byte 0: no copy of these 1 blocks is good" in logs
    with Client(cluster.first.uri()) as client:
        client.write(0, contents[0] * 256)
    assert cluster.json("scrub", "vol1", "--wait")["findings"] == 0


def test_a_light_scrub_reads_no_block(make_cluster):
    cluster = make_cluster(device_size="512MiB")
    cluster.create_volume(size="64MiB")
    contents = write_marked(cluster)
    before = cluster.json("volume", "show", "vol1")["scrubbed"]
    cluster.stop()
    damage(cluster, contents, 1)
    cluster.start()
    assert cluster.json("scrub", "vol1", "--light", "--wait")["findings"] == 0, "no map differs"
    after = cluster.json("volume", "show", "vol1")["scrubbed"]
    assert after["light"] > before["light"] == 0, "the making of a group is no scrub"
    assert after["deep"] == before["deep"], "a light scrub is not a deep one"
    status = cluster.json("status")
    assert status["scrubbed"] == after, "there is one volume"
    with urllib.request.urlopen(f"{cluster.first.api}/metrics") as answer:
        metrics = answer.read().decode()
    assert 'azekura_scrub_groups{kind="light"}' in metrics
    cluster.stop()
    assert cluster.unsound() > 0, "what is bad in the blocks only is left to a deep scrub"


def forge_one_copy(cluster, wanted, forged):
    """Writes `wanted` to block 7, and gives one copy `forged` instead, whose checksums are right."""
    with Client(cluster.first.uri()) as client:
        client.write(7 * BLOCK, wanted)
    # At once: the map must not have been saved since.
    cluster.kill_all()
    found = [(path, find_blocks(path, [wanted])) for node in cluster.nodes for path in log_files(node)]
    path, places = next((path, places) for path, places in found if places)
    forge_block(path, places[0][-1], forged)
    assert cluster.unsound() == 0, "every device by itself is sound"
    cluster.start()


def test_a_light_scrub_finds_a_copy_that_differs_with_right_checksums(make_cluster):
    cluster = make_cluster(device_size="512MiB")
    cluster.create_volume(size="64MiB")
    write_marked(cluster)
    generator = random.Random(5)
    for _ in range(5):
        wanted, forged = generator.randbytes(BLOCK), generator.randbytes(BLOCK)
        forge_one_copy(cluster, wanted, forged)
        result = run_cli("scrub", "vol1", "--light", "--wait", "--json", "--api", cluster.first.api)
        said = json.loads(result.stdout)
        if said["findings"] == 0 and [block["flaw"] for block in said["found"]] == ["damaged"]:
            continue  # The map was saved between the write and the kill, so there was a checksum that tells.
        break
    assert result.returncode == 1, result.stdout + result.stderr
    assert said["findings"] == 1
    assert "light scrub: 0 blocks were damaged, 1 blocks differed between copies" in "".join(
        node.log() for node in cluster.nodes
    )
    notes = cluster.json_of_unhealthy("status")["notes"]
    assert any("byte 28672: not what the primary has on device" in note for note in notes)
    answers = set()
    for node in cluster.nodes:
        with Client(node.uri()) as client:
            answers.add(client.read(7 * BLOCK, BLOCK))
    assert len(answers) == 1 and answers <= {wanted, forged}, "all copies are the primary's now"
    assert cluster.json("scrub", "vol1", "--light", "--wait")["findings"] == 0
    assert cluster.json("scrub", "vol1", "--wait")["findings"] == 0


def test_names_that_do_not_exist(shared_cluster):
    for target in ("nothing", "77"):
        result = run_cli("scrub", target, "--api", shared_cluster.first.api)
        assert result.returncode != 0
        assert target in result.stderr
