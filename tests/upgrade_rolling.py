"""A cluster goes from the earlier version to this one, node by node, while clients work on.

Not part of the tests that `./dev test` collects: `./dev upgrade` builds the earlier version and runs this.
"""

import json

import pytest

from tools.harness.cluster import CliError, run_cli
from tools.harness.nbd import Client
from tools.harness.process import wait_until
from tools.harness.run import run

from .test_projects import ask
from .upgrade_rig import AFTER, BEFORE, NO_EARLIER, VOLUME, World

pytestmark = NO_EARLIER
LISTS = ["node", "device", "class", "group", "volume", "snapshot"]
QUESTIONS = [["status"], ["volume", "show", "safe"], ["jobs"], ["kek", "show"], *([kind, "list"] for kind in LISTS)]


@pytest.fixture
def world(make_cluster, config):
    made = World(make_cluster, config)
    yield made
    made.end()


def check_team(world, node):
    """Whoever has the project's token sees what is the project's, and nothing else."""
    status, text = ask(node, "GET", "/v1/volumes", world.token)
    assert status == 200 and [volume["name"] for volume in json.loads(text)] == ["team/data"], (node.name, text)
    assert ask(node, "GET", "/v1/volumes/plain", world.token)[0] == 404


def check_attachment(world):
    """The volume that n2 was given is n2's."""
    shown = world.cluster.json("volume", "show", "mine")
    assert [entry["node_name"] for entry in shown["attachments"]] == ["n2"]
    with pytest.raises(ConnectionError):
        Client(world.cluster.first.uri("mine")).close()


def check_refusals(world):
    """While versions differ no data key is rotated, whichever version is asked, by whichever command."""
    for node in world.cluster.nodes:
        for program in [BEFORE, AFTER]:
            result = world.asks("volume", "rotate-key", "safe", program=program, node=node)
            told = result.stdout + result.stderr
            assert result.returncode != 0, told
            if program == AFTER and node.program == AFTER:
                older = [other.name for other in world.cluster.nodes if other.program != AFTER]
                assert "run a version that knows one data key a volume" in told, told
                assert all(name in told for name in older), told
            assert "panicked" not in told, told
    assert world.cluster.json("status")["healthy"]


def check_that_absent_nodes_count(world, node):
    """A node that is away is as old as its record says: it may come back as it was."""
    cluster = world.cluster
    if world.config == "embedded":
        # Without n1 nothing of the configuration changes.
        return
    node.stop()
    other = next(other for other in cluster.nodes if other is not node)
    told = world.asks("volume", "rotate-key", "safe", program=AFTER, node=other)
    assert told.returncode != 0 and f"one data key a volume: {node.name}" in told.stderr, told
    node.start()
    cluster.wait_healthy()


def check_while_rekeyed(world):
    """Commands of the earlier version get on with nodes that do what that version does not know."""
    for words in [["status"], ["volume", "show", "safe"], ["volume", "list"], ["snapshot", "list"], ["kek", "show"]]:
        for form in [[], ["--json"]]:
            result = world.asks(*words, *form, program=BEFORE, node=world.cluster.first)
            assert result.returncode == 0, (words, result.stdout, result.stderr)
    result = world.asks("jobs", program=BEFORE, node=world.cluster.first)
    # Commits before 2026-11-29 do not read lists with jobs of kinds that are new to them.
    assert result.returncode == 0 or "rekey" in result.stderr, result.stderr


def check_commands(world, node):
    """Commands of each version get what they ask for from a node of whichever."""
    for program in [BEFORE, AFTER]:
        for words in QUESTIONS:
            for form in [[], ["--json"]]:
                result = world.asks(*words, *form, program=program, node=node)
                assert result.returncode == 0, (node.name, program, words, result.stdout, result.stderr)
        name = f"by-{program.name}-{node.name}"
        for words in [["volume", "create", name, VOLUME, "--copies", 2], ["snapshot", "create", f"{name}@s"],
                      ["volume", "resize", name, "96MiB"], ["volume", "limit", name, "--iops", 500],
                      ["volume", "revert", name, "--at", "s", "--force"],
                      ["volume", "delete", name, "--yes", "--force", "--snapshots"]]:  # fmt: skip
            result = world.asks(*words, program=program, node=node)
            assert result.returncode == 0, (node.name, program, words, result.stdout, result.stderr)


def test_node_by_node_while_clients_work(world):
    world.start(BEFORE)
    cluster = world.cluster
    n1, n2, n3 = cluster.nodes
    for node in [n3, n2, n1]:
        node.program = BEFORE
    for number, node in enumerate([n3, n2, n1]):
        world.replace(node, AFTER)
        if number < 2:
            check_refusals(world)
            for other in cluster.nodes:
                world.change(other)
                check_commands(world, other)
                check_team(world, other)
            check_attachment(world)
            world.fio(n1 if number == 0 else n2)
        if number == 1:
            check_that_absent_nodes_count(world, n1)
    cluster.program = AFTER
    world.verify()
    check_team(world, n2)
    check_attachment(world)
    world.rotate(meanwhile=lambda: check_while_rekeyed(world))
    assert world.cluster.json("volume", "key", "safe")["generations"][-1]["number"] == 1
    world.change(n1)
    world.stop_and_check()


def test_nodes_are_killed_while_versions_differ(world):
    world.start(BEFORE)
    cluster = world.cluster
    n1, n2, n3 = cluster.nodes
    for node in [n1, n2]:
        node.program = BEFORE
    world.replace(n3, AFTER)
    world.replace(n3, AFTER, stop="kill")
    world.replace(n2, BEFORE, stop="kill")
    # The upgrade of a node that did not stop by itself.
    world.replace(n2, AFTER, stop="kill")
    world.replace(n1, BEFORE, stop="kill")
    # All at once: a power cut in the middle of the upgrade.
    cluster.kill_all()
    for node in cluster.nodes:
        node.start()
    cluster.wait_healthy()
    world.go_on()
    world.change(n1)
    world.change(n3)
    world.verify()
    world.replace(n1, AFTER)
    cluster.program = AFTER
    world.stop_and_check()


def test_whichever_version_leads(world):
    world.start(BEFORE)
    cluster = world.cluster
    n1, n2, n3 = cluster.nodes
    for node in [n1, n2]:
        node.program = BEFORE
    world.replace(n3, AFTER)
    for program in [BEFORE, AFTER]:
        world.leader_of(program)
        for node in cluster.nodes:
            world.change(node)
        # The groups of a class are the leader's work.
        cluster.cli("class", "create", "later", "--copies", 2, node=n1)
        make = ["volume", "create", "led", VOLUME, "--class", "later"]
        wait_until(lambda make=make: run_cli(*make, api=n3.api).returncode == 0, 60, "a volume of the new class")
        cluster.wait_healthy()
        world.leader_of(program)
        cluster.cli("volume", "delete", "led", "--yes", node=n2)
        wait_until(lambda: run_cli("class", "delete", "later", api=n1.api).returncode == 0, 60, "the end of a class")
        world.verify()
    told = world.asks("volume", "rotate-key", "safe", program=AFTER, node=n3)
    assert told.returncode != 0 and "one data key a volume" in told.stderr, told
    for node in [n2, n1]:
        world.replace(node, AFTER)
    cluster.program = AFTER
    world.rotate()
    world.stop_and_check()


def test_an_older_node_joins_a_cluster_that_is_newer(world):
    """A machine that is installed from an old package: it works beside the others as in an upgrade."""
    world.start(AFTER)
    cluster = world.cluster
    n3 = cluster.nodes[2]
    world.replace(n3, BEFORE)
    assert run_cli("version", program=BEFORE).returncode == 0
    world.change(n3)
    run(BEFORE, "status", "--api", n3.api)
    with pytest.raises(CliError, match="n3"):
        cluster.cli("volume", "rotate-key", "safe")
    world.stop_and_check()
