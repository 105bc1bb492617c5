"""The figures of shards: what is compared with what, and where it stands in the document."""

from types import SimpleNamespace

from tools.harness.document import PERFORMANCE

from . import shards
from .shards import Processes, Sharded, Turn, figures, load, markdown, ratios


def turns(cost):
    """Three turns, of a machine that gets slower: ratios are of one turn."""
    return [
        Turn(target, f"{kind}, paced", 1000.0 / slow, slow * (cost if target == "4 shards" else 10.0), 5.0)
        for kind in shards.KINDS
        for slow in (1, 2, 4)
        for target in (shards.ONE, "4 shards")
    ]


def test_each_target_is_compared_with_one_shard_in_its_own_turn():
    costs = ratios(turns(12.0), "randwrite, paced", lambda turn: turn.cpu_us)
    assert costs == {shards.ONE: 1.0, "4 shards": 1.2}


def test_the_goal_is_judged_without_rounding():
    assert figures(turns(11.0)) == {"shards_randwrite": "1.10: reached", "shards_randread": "1.10: reached"}
    assert figures(turns(11.04))["shards_randread"] == "1.10: **not reached**"


def test_figures_and_table_have_their_places():
    text = PERFORMANCE.read_text()
    for cell in figures(turns(11.0)):
        assert text.count(f"<!-- {cell} -->") == 1, cell
    assert "<!-- shards: begin -->" in text
    table = markdown(turns(12.0), [shards.ONE, "4 shards"], ["randwrite, paced"]).splitlines()
    assert table[-1] == "| randwrite, paced | 4 shards | 500 | 1.00 | 24.0 | 1.20 | 5 |"


def test_each_client_has_a_connection_of_its_own(tmp_path):
    words = load(["nbd://a/v", "nbd://b/v"], "randread", "1G", 5, 9000)
    assert words.count("--name=client1") == 1 and words.count("--uri=nbd://b/v") == 1
    assert "--rate_iops=4500" in words and words.index("--group_reporting") < words.index("--name=client0")
    options = SimpleNamespace(size="1G", device_size="1GiB", transport=None)
    assert len(set(Processes(tmp_path, options).uris())) == shards.CLIENTS
    assert len(Sharded(tmp_path, options, 2).uris()) == shards.CLIENTS
