"""Thin volumes on small devices: space is taken by writing, comes back with TRIM and deletion, and ends in an error."""

import random

import pytest

from .harness.nbd import ENOSPC, Client, NbdError
from .harness.process import wait_until

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
        # Of 16 segments, five are the reserve of garbage collection and of what gives space back, and groups are not spread
        # evenly: on devices this small a good part stays free when the first of them is full.
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
        again = fill(client, 1, given_up // 2)
        assert again == given_up // 2, "the space that TRIM gave up did not come back"
        for number in range(given_up, full_at):
            assert client.read(number * MIB, MIB) == noise(number)
    # The whole story is on the devices, too.
    cluster.kill_all()
    cluster.start()
    with Client(cluster.nodes[1].uri()) as client:
        assert client.read(0, MIB) == noise(10_000)
        for number in range(given_up, full_at):
            assert client.read(number * MIB, MIB) == noise(number), f"MiB {number} after a crash of a full cluster"


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
