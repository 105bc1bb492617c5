"""Cold data goes bad: a scrub finds it before a reader does."""

import json

from .harness.cluster import run_cli
from .harness.nbd import Client
from .test_damage import BLOCK, damage, write_marked


def test_a_scrub_mends_what_nobody_reads(make_cluster):
    cluster = make_cluster(device_size="512MiB")
    cluster.create_volume(size="64MiB")
    contents = write_marked(cluster)
    cluster.stop()
    damage(cluster, contents, 1)
    assert cluster.unsound() > 0
    cluster.start()
    found = cluster.json("scrub", "vol1", "--wait")
    assert found["groups"] > 0
    assert found["findings"] == 0, "damage that is mended is no finding"
    groups = cluster.json("group", "list")
    assert all(group["scrub"]["done"] >= group["scrub"]["wanted"] > 0 for group in groups)
    with Client(cluster.first.uri()) as client:
        for number, content in enumerate(contents):
            assert client.read(number * BLOCK, BLOCK) == content
    cluster.stop()
    assert cluster.unsound() == 0


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


def test_names_that_do_not_exist(shared_cluster):
    for target in ("nothing", "77"):
        result = run_cli("scrub", target, "--api", shared_cluster.first.api)
        assert result.returncode != 0
        assert target in result.stderr
