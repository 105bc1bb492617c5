"""How many shards the nodes of a torment have."""

import argparse
from types import SimpleNamespace

import pytest

from . import shards
from .__main__ import result_of, shards_of
from .rig import RigNode
from .torment import Outcome


def asked(**options):
    return SimpleNamespace(**{"shards": None, "figures": None, "nodes": 4, **options})


def test_a_seed_has_its_shards_and_seeds_differ():
    draws = [shards_of(asked(), seed) for seed in range(40)]
    assert draws == [shards_of(asked(shards=shards.DRAW), seed) for seed in range(40)]
    assert {count for drawn in draws for count in drawn} == set(shards.DRAWN_FROM)
    assert len({tuple(drawn) for drawn in draws}) > 8, "among them nodes that differ"


def test_a_number_is_every_nodes():
    assert shards_of(asked(shards=3), 7) == [3, 3, 3, 3]
    assert shards_of(asked(figures=[]), 7) == [1, 1, 1], "figures are compared with former ones"
    assert shards_of(asked(figures=[], shards=2), 7) == [2, 2, 2]


@pytest.mark.parametrize("text", ["0", "5", "-1", "two", "", "1.5", "²"])
def test_other_numbers_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"from 1 to 4 nor 'draw'"):
        shards.parse(text)


def test_what_is_asked_for_is_read():
    assert [shards.parse(text) for text in ("1", "4", "draw")] == [1, 4, shards.DRAW]


@pytest.mark.parametrize(("count", "size"), [(1, "2048MiB"), (2, "1024MiB"), (4, "512MiB")])
def test_nodes_are_started_with_shards_and_as_many_devices(tmp_path, count, size):
    cluster = SimpleNamespace(folder=tmp_path, config_url="http://etcd", device_size="2GiB")
    words = RigNode(cluster, 1, SimpleNamespace(address="10.0.0.1"), count).arguments()
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert (options["--shards"], options["--devices"], options["--device-size"]) == (str(count), str(count), size)


def test_the_result_says_which_shards_there_were():
    torment = SimpleNamespace(seed=7, outcome=Outcome(), table=lambda: "| a table |")
    result = result_of(torment, 15, [1, 2, 1, 2])
    assert result == "| a table | Minutes: 15, seed 7, shards: n1 1, n2 2, n3 1, n4 2. Problems: 0."
    assert "shards: 2 on each node." in result_of(torment, 15, [2, 2, 2, 2])
