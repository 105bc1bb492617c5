"""A class with a home: a copy of every block there, and the primaries; the CSI driver takes the class near the pod."""

import urllib.request

import pytest

from tools.harness.cluster import CliError
from tools.harness.csi import CsiError, Driver, mounted
from tools.harness.nbd import Client
from tools.harness.process import wait_until

GIB = 2**30
GROUPS = 64
CHUNK = 4 << 20
SITE = "topology.azekura.io/site"


@pytest.fixture
def cluster(make_cluster):
    """Nodes 1 and 2 are in berlin, 3 and 4 in paris."""
    return make_cluster(nodes=4, config="etcd", sites=["berlin", "berlin", "paris", "paris"])


def copies(cluster):
    """How many groups each node's device is to have copies of."""
    devices = {device["node_name"]: device for device in cluster.json("device", "list")}
    return [devices[node.name]["groups"] for node in cluster.nodes]


def led(node):
    """How many groups a node leads."""
    with urllib.request.urlopen(f"{node.api}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    values = [line.rsplit(" ", 1)[1] for line in lines if line.startswith("azekura_primary_groups{")]
    return sum(int(value) for value in values)


def write_everywhere(node, volume):
    """Enough writes to each group in a moment that it is worth a hand-over."""
    with Client(node.uri(volume)) as client:
        for chunk in range(GROUPS):
            for block in range(24):
                client.write(chunk * CHUNK + block * 4096, bytes([chunk, block]) * 2048)


def drawn_to(cluster, writer, nodes, volume):
    def all_are_there():
        write_everywhere(writer, volume)
        return sum(led(node) for node in nodes) == GROUPS

    wait_until(all_are_there, 240, "the primaries' way to where the writes come from")


def test_a_copy_is_at_home_and_leads(cluster):
    cluster.cli("class", "create", "near", "--copies", "2", "--home", "berlin")
    cluster.cli("volume", "create", "vol1", "1GiB", "--class", "near", "--shared")
    cluster.wait_healthy()
    assert cluster.json("class", "show", "near")["home"] == {"site": "berlin"}
    assert copies(cluster) == [GROUPS // 2] * 4, "one copy at home, one elsewhere, by the devices' sizes"
    berlin, paris = cluster.nodes[:2], cluster.nodes[2:]
    assert [led(node) for node in cluster.nodes] == [GROUPS // 2, GROUPS // 2, 0, 0]
    # Half of the groups have no copy on the writer's own node.
    drawn_to(cluster, paris[0], paris, "vol1")
    assert led(paris[1]) > 0
    drawn_to(cluster, berlin[1], berlin, "vol1")


def notes(cluster):
    return [note for note in cluster.json_of_unhealthy("status")["notes"] if "have no copy in site 'berlin'" in note]


def test_copies_leave_a_drained_home_and_come_back(cluster):
    cluster.cli("class", "create", "near", "--copies", "2", "--home", "berlin")
    cluster.cli("volume", "create", "vol1", "1GiB", "--class", "near")
    cluster.wait_healthy()
    assert notes(cluster) == []
    berlin = [device["id"] for device in cluster.json("device", "list") if device["node_name"] in ("n1", "n2")]
    for device in berlin:
        cluster.cli("device", "drain", device)
    wait_until(lambda: copies(cluster)[:2] == [0, 0], 240, "the drain")
    assert len(notes(cluster)) == 1 and f"{GROUPS} of {GROUPS}" in notes(cluster)[0]
    for device in berlin:
        cluster.cli("device", "undrain", device)
    wait_until(lambda: copies(cluster) == [GROUPS // 2] * 4 and notes(cluster) == [], 240, "the way home")
    cluster.wait_healthy()


def test_what_can_not_be(cluster):
    with pytest.raises(CliError, match="neither a site nor a rack"):
        cluster.cli("class", "create", "c", "--copies", "2", "--home", "berlin/")
    cluster.cli("class", "create", "far", "--copies", "2", "--home", "london")
    assert "no device in use is there" in cluster.json("class", "show", "far")["problem"]
    with pytest.raises(CliError, match="in site 'london', and no device in use is there"):
        cluster.cli("volume", "create", "v", "1GiB", "--class", "far")
    # Four devices of 512 MiB: a volume fits into the cluster, and not into the site.
    cluster.cli("class", "create", "near", "--copies", "1", "--home", "berlin", "--overcommit", "1")
    with pytest.raises(CliError, match="of the devices in site 'berlin' when full"):
        cluster.cli("volume", "create", "v", "768MiB", "--class", "near")
    cluster.cli("volume", "create", "v", "384MiB", "--class", "near")


def test_the_driver_takes_the_class_near_the_pod(cluster):
    for name, options in [
        ("berlin", ["--home", "berlin", "--overcommit", "1"]),
        ("paris", ["--home", "paris"]),
        ("any", []),
    ]:
        cluster.cli("class", "create", name, "--copies", "2", *options)
    node, controller = Driver(cluster.nodes[2], "node").start(), Driver(cluster.first, "controller").start()
    there = node.call("Node/NodeGetInfo")["accessible_topology"]
    assert there["segments"][SITE] == "paris"
    berlin, london = ({"segments": {SITE: site}} for site in ("berlin", "london"))
    classes = {"class": "berlin,paris,any"}

    def capacity(place, **parameters):
        return int(
            controller.call("Controller/GetCapacity", parameters=parameters, accessible_topology=place).get(
                "available_capacity", 0
            )
        )

    homes = {"class": "berlin,paris"}
    assert 0 < capacity(berlin, **homes) < capacity(there, **homes)
    assert capacity(london, **homes) == 0

    def create(name, *places, size=GIB // 16, parameters=classes):
        wanted = {"requisite": [], "preferred": list(places)}
        made = controller.call(
            "Controller/CreateVolume",
            name=name,
            capacity_range={"required_bytes": size},
            volume_capabilities=[mounted()],
            parameters=parameters,
            accessibility_requirements=wanted if places else None,
        )["volume"]
        assert not made.get("accessible_topology"), "it can be used from everywhere"
        return cluster.json("volume", "show", made["volume_id"])["class"]

    assert create("one", there, berlin) == "paris"
    assert create("two", berlin, there) == "berlin"
    assert create("three", london) == "any"
    assert create("four") == "berlin", "the first, where nobody says anything"
    # The same call again, after the pod was placed elsewhere.
    assert create("one", berlin) == "paris"
    # No room at home.
    assert create("large", berlin, size=7 * GIB // 8) == "any"
    with pytest.raises(CsiError, match="none of the classes berlin, paris keeps a copy") as refused:
        create("nowhere", london, parameters={"class": "berlin,paris"})
    assert refused.value.code == "ResourceExhausted"
    with pytest.raises(CsiError, match="no storage class 'none'"):
        create("nowhere", london, parameters={"class": "berlin,none"})

    for driver in (node, controller):
        driver.stop()
