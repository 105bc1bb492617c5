"""The figures of large volumes: goals, medians, what was not measured, and where they stand in the document."""

from types import SimpleNamespace

import pytest

from tools.harness.document import PERFORMANCE

from . import large
from .large import figures
from .large.figures import GOALS, NOT_MEASURED, Phase, judge
from .large.rig import samples

BY_NAME = {goal.name: goal for goal in GOALS}
OPTIONS = SimpleNamespace(minutes=10, secs=8, rounds=1)


def phase(name="thin"):
    return vars(Phase(name, 600, 50_000.0, 48_000.0, 9_000.0, [], 900.4, 0.1, [101.0, 99.0, 98.0]))


def thin(**values):
    restart = {"map_mib": 64.0, "replay_mib": 128.0, "opened_s": 1.5}
    return {"values": values, "phases": [phase("small"), phase()], "memory": None, "restart": restart}


def test_rounds_become_medians_and_each_goal_has_its_direction():
    rounds = [thin(large_rate=rate, large_p99=rate * 5) for rate in (0.5, 0.9, 0.7)]
    rate, p99 = judge(["large_rate", "large_p99"], {"azekura": {"thin": rounds}})
    assert (rate.value, rate.reached) == (0.7, True)
    assert (p99.value, p99.reached) == (3.5, False)


def test_a_figure_without_a_goal_is_not_judged():
    (beside,) = judge(["large_beside"], {"azekura": {"thin": [thin(large_beside=0.2)]}})
    assert beside.value == 0.2 and beside.reached is None
    assert figures.cells([beside], 10) == {}


def test_the_other_build_stands_beside():
    results = {"azekura": {"thin": [thin(large_rate=0.8)]}, "before": {"thin": [thin(large_rate=0.13)]}}
    table = judge(["large_rate"], results)
    assert table[0].before == 0.13
    assert "| thin 200 GiB over 2 GiB: random writes | 0.7 | 0.80 | 0.13 | yes |" in figures.markdown(
        table, results, OPTIONS
    )


def test_what_is_not_measured_says_so_and_why():
    results = {"azekura": {"dense": [{"reason": "dense data: not measured, no room"}]}}
    table = judge(["large_dense_write"], results)
    assert table[0].value is None and figures.cells(table, 10) == {}
    text = figures.markdown(table, results, OPTIONS)
    assert f"| 0.6 | {NOT_MEASURED} |" in text and "no room." in text
    assert f"Not measured in this run: {BY_NAME['large_rate'].what};" in text
    assert NOT_MEASURED in figures.terminal(table)


def test_a_short_run_gives_no_figures_of_the_thin_volume():
    results = {"azekura": {"thin": [thin(large_rate=0.8)], "sequential": [{"values": {"large_sequential": 0.499}}]}}
    table = judge(["large_rate", "large_sequential"], results)
    assert figures.cells(table, 0.5) == {"large_sequential": "0.50: **not reached**"}
    assert figures.cells(table, 10)["large_rate"] == "0.80: reached"


def test_tables_have_a_cell_for_every_head():
    dense = {"rates": {"write over": 1.0}, "over_gib": 10.0, "inside_gib": 0.5, "memory": "256M", "values": {}}
    results = {"azekura": {"thin": [thin(large_rate=0.8)], "dense": [dense]}}
    text = figures.markdown(judge(["large_rate"], results), results, OPTIONS)
    assert "64 MiB of map and 128 MiB of log" in text and "10.0 GiB over 0.5 GiB, --memory 256M" in text
    lines = text.split("`azekura`, the last round:")[1].splitlines()
    assert {line.count("|") for line in lines if line.startswith("|")} == {10}


def test_the_last_minute_of_a_short_run_is_all_of_it():
    assert figures.last_minute([9.0] * 54 + [4.0] * 6, 10, 8.5) == 4.0
    assert figures.last_minute([9.0, 3.0], 10, 8.5) == 6.0
    assert figures.last_minute([], 10, 8.5) == 8.5


def test_every_goal_has_its_cell_in_the_document():
    text = PERFORMANCE.read_text()
    for goal in GOALS:
        assert text.count(f"<!-- {goal.name} -->") == (0 if goal.limit is None else 1), goal.name
    assert text.count("<!-- large: begin -->") == text.count("<!-- large: end -->") == 1


def test_figures_choose_the_parts_that_measure_them():
    assert large.chosen("restart") == (["large_restart"], ["thin"])
    assert large.chosen("dense|sequential")[1] == ["dense", "sequential"]
    assert large.chosen("")[1] == list(large.PARTS)
    assert large.chosen("nothing") == ([], [])


def test_devices_that_do_not_fit_are_refused(tmp_path):
    large.check_room(tmp_path, 0)
    with pytest.raises(RuntimeError, match="--device-size"):
        large.check_room(tmp_path, 2**60)


def test_metrics_are_read_by_their_whole_names():
    text = (
        "# HELP azekura_device_open Whether the device serves.\n"
        "# TYPE azekura_device_open gauge\n"
        'azekura_device_open{device="1"} 1\n'
        'azekura_device_open{device="2"} 0\n'
        'azekura_device_open_files{device="1"} 7\n'
        "azekura_uptime_seconds 1.5\n"
    )
    assert samples(text, "device_open") == {'device="1"': 1.0, 'device="2"': 0.0}
    assert samples(text, "uptime_seconds") == {"": 1.5}
    assert samples(text, "nothing") == {}
