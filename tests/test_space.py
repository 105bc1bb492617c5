"""Thin volumes on small devices: space is taken by writing, comes back with TRIM and deletion, and ends in an error."""

import random

import pytest

from tools.harness.cluster import CliError
from tools.harness.nbd import ENOSPC, Client, NbdError
from tools.harness.process import wait_until

MIB = 2**20


def noise(number, length=MIB):
    """Bytes that no compression makes smaller."""
    return random.Random(number).randbytes(length)


def fill(client, first, end):
    """Writes MiB after MiB until the server says that there is no space; how far it came."""
    for number in range(first, end):
        try:
            client.write(number * MIB, noise(number))
        except NbdError as error:
            assert error.code == ENOSPC, error
            return number
    return end


@pytest.mark.slow
def test_a_full_device_answers_enospc_and_goes_on_after_trim(make_cluster):
    cluster = make_cluster(device_size="512MiB")
    # More than the devices hold, if the overcommit limit of the class allows it; else as much as there is.
    end = 1024
    cluster.create_volume(size=f"{end}MiB")
    with Client(cluster.first.uri(), timeout_s=300) as client:
        full_at = fill(client, 0, end)
        assert full_at < end, "the devices took more than they hold"
        # Of 16 segments, five are the reserve of garbage collection and of what gives space back, and groups are not
        # spread evenly: on devices this small a good part stays free when the first of them is full.
        assert full_at * 2 > 3 * 512 * 4 // 10, f"full after only {full_at} MiB with two copies on 3 x 512 MiB"
        for number in range(full_at):
            assert client.read(number * MIB, MIB) == noise(number), f"MiB {number} of a full volume"
        # Still full, still answering.
        with pytest.raises(NbdError):
            for number in range(full_at, full_at + 64):
                client.write(number * MIB, noise(number))
        given_up = full_at // 2
        client.trim(0, given_up * MIB)
        client.flush()

        def writes_go_on():
            try:
                client.write(0, noise(10_000))
                return True
            except NbdError as error:
                assert error.code == ENOSPC, error
                return False

        wait_until(writes_go_on, 120, "space after TRIM")
        # Each group's other copies hear of the TRIM with its next message.
        again = 1

        def filled():
            nonlocal again
            again = fill(client, again, given_up // 2)
            return again == given_up // 2

        wait_until(filled, 30, "all the space that TRIM gave up")
        for number in range(given_up, full_at):
            assert client.read(number * MIB, MIB) == noise(number)
    # The whole story is on the devices, too.
    cluster.kill_all()
    cluster.start()
    with Client(cluster.nodes[1].uri()) as client:
        assert client.read(0, MIB) == noise(10_000)
        for number in range(given_up, full_at):
            assert client.read(number * MIB, MIB) == noise(number), f"MiB {number} after a crash of a full cluster"


def test_full_ratios_warn_and_then_stop_writes_until_they_are_raised(make_cluster):
    cluster = make_cluster(device_size="512MiB")
    cluster.create_volume(size="512MiB")
    cluster.cli("cluster", "set", "nearly-full", "10%")
    cluster.cli("cluster", "set", "full", "30%")
    with Client(cluster.first.uri(), timeout_s=300) as client:
        full_at = fill(client, 0, 512)
        devices = cluster.json("space")["devices"]
        assert any(device["full"] for device in devices), devices
        # Whatever was under way when the limit was passed is a few MiB.
        for device in devices:
            assert device["used_bytes"] <= device["capacity_bytes"] * 0.3 + 32 * MIB, devices
        problems = cluster.json_of_unhealthy("status")["problems"]
        assert any("is full: delete volumes, trim them, or add devices" in problem for problem in problems), problems
        # Reads and TRIM go on; so do writes, once there is more room, without another step.
        assert client.read(0, MIB) == noise(0)
        client.trim(0, MIB)
        cluster.cli("cluster", "set", "full", "95%")
        wait_until(lambda: fill(client, full_at, full_at + 8) == full_at + 8, 30, "writes below the raised limit")
        problems = cluster.json_of_unhealthy("status")["problems"]
        assert any("is nearly full" in problem for problem in problems), problems
    with pytest.raises(CliError, match="nearly-full <= full"):
        cluster.cli("cluster", "set", "nearly-full", "96%")


def test_space_adds_up(make_cluster):
    cluster = make_cluster()
    cluster.create_volume("one", "256MiB")
    cluster.create_volume("two", "128MiB", copies=3)
    for name, written in (("one", 5), ("two", 3)):
        with Client(cluster.first.uri(name)) as client:
            for number in range(written):
                client.write(number * MIB, noise(number))
    # The last write of each group counts at its other copies when they hear of its commitment: a heartbeat later.
    wait_until(lambda: cluster.used_bytes() == (5 * 2 + 3 * 3) * MIB, 30, "the use of what was written")
    space = cluster.json("space")
    assert space["missing"] == []
    volumes = {volume["name"]: volume for volume in space["volumes"]}
    for name, size, copies, written in (("one", 256, 2, 5), ("two", 128, 3, 3)):
        assert volumes[name]["provisioned_bytes"] == size * copies * MIB
        assert volumes[name]["written_bytes"] == volumes[name]["unique_bytes"] == written * copies * MIB
        assert volumes[name]["shared_bytes"] == 0
    whole = space["cluster"]
    assert whole["used_bytes"] == whole["unique_bytes"] == (5 * 2 + 3 * 3) * MIB
    assert (whole["snapshot_bytes"], whole["leaving_bytes"]) == (0, 0)
    assert whole["provisioned_bytes"] == (256 * 2 + 128 * 3) * MIB
    for device in space["devices"]:
        assert device["physical_bytes"] == device["reserved_bytes"] + device["capacity_bytes"]
        assert device["capacity_bytes"] == device["used_bytes"] + device["free_bytes"]
    assert sum(device["used_bytes"] for device in space["devices"]) == whole["used_bytes"]
    capacity = sum(device["capacity_bytes"] for device in space["devices"])
    assert capacity == whole["capacity_bytes"] == whole["usable_bytes"]
    cluster.nodes[2].kill()
    wait_until(lambda: "NOT in the figures: node n3" in cluster.cli("space"), 30, "a node that is missing")


def test_deleting_a_volume_frees_its_space(make_cluster):
    cluster = make_cluster(device_size="1GiB")
    cluster.create_volume("kept", "256MiB")
    with Client(cluster.first.uri("kept")) as client:
        client.write(0, noise(1))
    # Devices report their use every so often, hence the waiting.
    before = 2 * MIB
    wait_until(lambda: cluster.used_bytes() == before, 60, "the use of what was written")
    for round_number in range(3):
        # Three rounds of 400 MiB in two copies: without the space back, the third would not fit on 3 GiB.
        name = f"gone{round_number}"
        cluster.create_volume(name, "512MiB")
        with Client(cluster.first.uri(name), timeout_s=300) as client:
            for number in range(400):
                client.write(number * MIB, noise(number))
        wait_until(lambda: cluster.used_bytes() >= before + 2 * 400 * MIB, 60, "the use of what was written")
        cluster.delete_volume(name)
        wait_until(lambda: cluster.used_bytes() <= before + 8 * MIB, 120, "space of a deleted volume")
    with Client(cluster.first.uri("kept")) as client:
        assert client.read(0, MIB) == noise(1)


def test_a_deleted_volume_is_gone_and_its_name_is_free(make_cluster):
    cluster = make_cluster()
    cluster.create_volume("again", "64MiB")
    with Client(cluster.first.uri("again")) as client:
        client.write(0, noise(5))
    cluster.delete_volume("again")
    for node in cluster.nodes:
        wait_until(lambda: refused(node, "again"), 30, f"{node.name} no longer serves a deleted volume")
    cluster.create_volume("again", "64MiB")
    for node in cluster.nodes:
        with Client(node.uri("again")) as client:
            assert client.read(0, MIB) == bytes(MIB), "a new volume shows the old one's data"


def refused(node, name):
    try:
        Client(node.uri(name)).close()
        return False
    except ConnectionError:
        return True


def test_rewriting_does_not_eat_space(make_cluster):
    """The same 64 MiB written until three times the devices' size went by: the log is cleaned behind it."""
    cluster = make_cluster(device_size="512MiB")
    cluster.create_volume(size="64MiB")
    devices, copies, pieces = 3 * 512, 2, 64
    writes = 3 * devices // copies
    with Client(cluster.first.uri(), timeout_s=300) as client:
        for number in range(writes):
            client.write(number % pieces * MIB, noise(number))
        for number in range(writes - pieces, writes):
            assert client.read(number % pieces * MIB, MIB) == noise(number)
    wait_until(lambda: cluster.used_bytes() == copies * pieces * MIB, 60, "each block counted once a copy")
