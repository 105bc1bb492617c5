"""A class whose volumes are at home where they are attached: a copy on that host, which follows the volume."""

import pytest

from tools.harness.cluster import CliError
from tools.harness.nbd import Client
from tools.harness.process import wait_until

CHUNK = 4 << 20
MIB = 1 << 20


@pytest.fixture
def cluster(make_cluster):
    """Three nodes, and a class whose volumes are at home where they are attached."""
    cluster = make_cluster(nodes=3)
    cluster.cli("class", "create", "near", "--copies", "2", "--home", "attached")
    return cluster


def home(cluster, volume):
    return cluster.json("volume", "show", volume).get("home")


def is_at(cluster, volume, node):
    """Whether everything of the volume has a copy in sync on the node."""
    found = home(cluster, volume)
    return found and found.get("host") == node.name and found["groups_there"] == found["groups"]


def block(number, seed):
    return bytes([seed, number % 251]) * 2048


def fill(client, seed):
    """A block in each of 32 chunks."""
    for number in range(32):
        client.write(number * CHUNK + (number % 8) * 4096, block(number, seed))
    client.flush()


def check(client, seed):
    for number in range(32):
        assert client.read(number * CHUNK + (number % 8) * 4096, 4096) == block(number, seed), number


def test_a_copy_goes_where_the_volume_is(cluster):
    first, second, third = cluster.nodes
    cluster.cli("volume", "create", "vol1", "128MiB", "--class", "near")
    assert cluster.json("volume", "show", "vol1")["class"] == "near"
    assert home(cluster, "vol1") is None, "nobody has used it"
    with Client(second.uri("vol1")) as client:
        fill(client, 1)
        wait_until(lambda: is_at(cluster, "vol1", second), 60, "the first way home")
        text = cluster.cli("volume", "show", "vol1")
        assert "home     host n2, with a copy of everything" in text
        check(client, 1)
    # Five minutes are the default: a look elsewhere changes nothing.
    with Client(third.uri("vol1")) as client:
        check(client, 1)
        assert is_at(cluster, "vol1", second)
        cluster.cli("cluster", "set", "follow-after", "2s")
        fill(client, 2)
        wait_until(lambda: is_at(cluster, "vol1", third), 120, "the way to where it is used now")
        check(client, 2)
    cluster.wait_healthy()
    # The home's node goes: the others have everything, and it stays at home there.
    third.kill()
    with Client(first.uri("vol1")) as client:
        check(client, 2)
        fill(client, 3)
    third.start()
    cluster.wait_healthy()
    with Client(third.uri("vol1")) as client:
        check(client, 3)


def test_volumes_do_not_share_a_home(cluster):
    first, second, _ = cluster.nodes
    cluster.cli("volume", "create", "a", "64MiB", "--class", "near")
    cluster.cli("volume", "create", "b", "64MiB", "--class", "near")
    with Client(first.uri("a")) as a, Client(second.uri("b")) as b:
        a.write(0, block(0, 1))
        b.write(0, block(0, 2))
        wait_until(lambda: is_at(cluster, "a", first) and is_at(cluster, "b", second), 60, "the way home of both")
    listed = {each["name"]: each for each in cluster.json("class", "list")}
    assert set(listed) == {"near"}, "what volumes have of their own is nobody's class"
    assert listed["near"]["home_attached"] and listed["near"]["volumes"] == 2 and listed["near"]["groups"] == 8
    assert "attached" in cluster.cli("class", "list")
    assert {group["class"] for group in cluster.json("group", "list")} == {"near"}
    assert [each["name"] for each in cluster.json("space")["classes"]] == ["near"]


def test_a_clone_shares_the_groups_of_its_source(cluster):
    first, second, _ = cluster.nodes
    cluster.cli("volume", "create", "vol1", "64MiB", "--class", "near")
    cluster.cli("cluster", "set", "follow-after", "1s")
    with Client(first.uri("vol1")) as client:
        client.write(0, block(0, 1))
        client.flush()
        wait_until(lambda: is_at(cluster, "vol1", first), 60, "the way home")
        cluster.cli("snapshot", "create", "vol1@s")
        cluster.cli("volume", "clone", "vol1@s", "vol2")
        assert cluster.json("class", "show", "near")["groups"] == 4
        with Client(second.uri("vol2")) as clone:
            assert clone.read(0, 4096) == block(0, 1)
            assert is_at(cluster, "vol2", first), "both are used, in no place of their own"


def test_groups_go_after_their_volume(cluster):
    cluster.cli("volume", "create", "vol1", "64MiB", "--class", "near")
    cluster.wait_healthy()
    with pytest.raises(CliError, match="vol1"):
        cluster.cli("class", "delete", "near")
    cluster.cli("volume", "delete", "vol1", "--yes")
    # They stay for two minutes from when they were made: a volume might be about to come.
    wait_until(lambda: cluster.json("group", "list") == [], 240, "the end of the volume's groups")
    cluster.cli("class", "delete", "near")
    assert cluster.json("class", "list") == []


def test_what_can_not_be(cluster):
    with pytest.raises(CliError, match="no storage class|not found|no class"):
        cluster.cli("class", "show", "near@00000000")
    with pytest.raises(CliError) as refused:
        cluster.cli("class", "delete", "near@00000000")
    assert refused.value.code == 3
    with pytest.raises(CliError) as refused:
        cluster.cli("volume", "create", "v", "64MiB", "--class", "near@00000000")
    assert refused.value.code == 3
    with pytest.raises(CliError, match="overcommit|may be promised|when full"):
        cluster.cli("volume", "create", "v", "1TiB", "--class", "near")
    assert cluster.json("group", "list") == [], "nothing is made for what can't be"
    cluster.cli("class", "create", "wide", "--copies", "4", "--home", "attached")
    with pytest.raises(CliError, match="'wide'"):
        cluster.cli("volume", "create", "v", "64MiB", "--class", "wide")
    cluster.cli("volume", "create", "v", "64MiB", "--class", "near")
    # One that is too large to be at home anywhere is where there is room.
    cluster.cli("volume", "create", "large", "512MiB", "--class", "near")
    with Client(cluster.first.uri("large")) as client:
        client.write(0, block(0, 1))
        with Client(cluster.first.uri("v")) as small:
            small.write(0, block(0, 2))
            wait_until(lambda: is_at(cluster, "v", cluster.first), 60, "the small one's way home")
        assert home(cluster, "large") is None
        cluster.wait_healthy()
        [note] = [each for each in cluster.json("status")["notes"] if "no room at host 'n1'" in each]
        assert "for large, " in note
