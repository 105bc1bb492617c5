"""Nodes that are started with the earlier version again: that works as long as nothing is kept in a format that this
version does not know; from then on it is refused, before anything is read or written, with what to do.

Not part of the tests that `./dev test` collects: `./dev upgrade` builds the earlier version and runs this.
"""

import pytest

from tools.harness.cluster import run_cli
from tools.harness.process import wait_until

from .upgrade_rig import AFTER, BEFORE, NO_EARLIER, World

pytestmark = NO_EARLIER
# A node that is refused tells so as soon as it has read the configuration.
REFUSED_WITHIN_S = 60


@pytest.fixture
def world(make_cluster, config):
    made = World(make_cluster, config)
    yield made
    made.end()


def test_before_a_new_format_is_written_nodes_go_back(world):
    world.start(AFTER)
    for node in world.cluster.nodes:
        world.replace(node, BEFORE)
        world.change(node)
    world.verify()
    for node in world.cluster.nodes:
        world.replace(node, AFTER)
    world.stop_and_check()


def test_after_a_new_format_was_written_they_are_refused_and_damage_nothing(world):
    world.start(AFTER)
    world.rotate()
    cluster = world.cluster
    for node in reversed(cluster.nodes):
        node.stop()
        node.program = BEFORE
        node.start()
        wait_until(lambda node=node: not node.alive, REFUSED_WITHIN_S, f"the refusal of {node.name}, with its log")
        assert node.process.child.returncode != 0
        assert "key-generations" in node.process.log_tail(8), node.process.log_tail(8)
        node.program = AFTER
        node.start()
        cluster.wait_healthy()
        world.go_on()
    world.stop_and_check()
    # Nor does the earlier version's command take what it can't read for damage that it mends.
    world.check_stores(BEFORE, expected=None)
    assert run_cli("version", program=BEFORE).returncode == 0
