"""Ratios, goals, medians and the sustained test's arithmetic."""

import pytest

from tools.harness.document import PERFORMANCE

from . import report, snapshots, sustained
from .fio import FioError, Measurement
from .plan import TESTS
from .sizes import parse_size

BY_NAME = {test.name: test for test in TESTS}


def run(target, test, iops, cpu=20.0, mib_s=0.0):
    measurement = Measurement(iops, mib_s, 1000, 10.0, 20.0, 5.0)
    return report.Run(target, test, measurement, cpu, [10.0, 20.0])


def table(*runs, test="randwrite_q128"):
    return report.rows([BY_NAME[test]], ["azekura", "qemu-nbd", "raw"], list(runs))


def test_ratio_and_goal():
    azekura, yardstick = table(run("azekura", "randwrite_q128", 990), run("qemu-nbd", "randwrite_q128", 1000))
    assert azekura.ratio == pytest.approx(0.99)
    assert azekura.reached is False, "0.99 is not 1.0, whatever the table rounds it to"
    assert yardstick.ratio is None and yardstick.reached is None


def test_rounds_become_medians():
    runs = [run("azekura", "randwrite_q128", rate, cpu) for rate, cpu in ((100, 1), (900, 2), (300, 30))]
    assert table(*runs)[0].rate == 300
    assert table(*runs)[0].server_cpu_us == 2


def test_large_requests_are_judged_in_bytes():
    runs = [run("azekura", "write_4M", 1, mib_s=800), run("qemu-nbd", "write_4M", 1, mib_s=1000)]
    assert table(*runs, test="write_4M")[0].reached is True


def test_without_the_yardstick_nothing_is_judged():
    (only,) = table(run("azekura", "randwrite_q128", 990))
    assert only.ratio is None and only.reached is None


def test_beside_another_build_the_turns_are_compared():
    rates = [(100, 200), (300, 100), (90, 100)]
    runs = [
        run(name, "randwrite_q128", rate, cpu)
        for pair in rates
        for name, rate, cpu in zip(("azekura", "before"), pair, (30, 20))
    ]
    (row,) = report.beside(TESTS, runs)
    ratios = {"rate": pytest.approx(0.9), "least": pytest.approx(0.5), "most": pytest.approx(3)}
    assert row == {"test": "randwrite_q128", "cpu": pytest.approx(1.5), **ratios}
    assert "| randwrite_q128 | 0.900 | 0.50 to 3.00 | 1.500 |" in report.markdown_beside([row], "azekura-1a2b3c4")
    assert report.beside(TESTS, [run("azekura", "randwrite_q128", 1)]) == []


def test_tables_have_a_column_for_every_head():
    rows = table(run("azekura", "randwrite_q128", 990), run("raw", "randwrite_q128", 5, cpu=None))
    lines = report.terminal(rows).splitlines()
    assert len(lines) == 3 and lines[0].split()[0] == "test"
    facts = dict(processor="p", cores=2, memory_gib=1, file_system="f", kernel="k")
    text = report.markdown(rows, facts, {"fio": "f", "qemu-nbd": "q", "azekura": "a", "commit": "c"}, "")
    body = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in body} == {len(report.HEAD) + 1}


def test_limits():
    judged = report.limits(table(run("azekura", "randwrite_q128", 990, cpu=25.1)), 150.0)
    assert [reached for *_, reached in judged] == [False, True]


def test_every_goal_has_its_cell_in_the_document():
    text = PERFORMANCE.read_text()
    runs = [run(target, test.name, 990, mib_s=990.0) for test in TESTS for target in ("azekura", "qemu-nbd")]
    rows = report.rows(TESTS, ["azekura", "qemu-nbd"], runs)
    chain = [(name, (1, None), (1, None), 1.0) for name in [*snapshots.CHAIN_TESTS, "protect"]]
    found = report.figures(rows, report.limits(rows, 150.5)) | snapshots.figures(chain, 1000)
    assert "snapshots" not in snapshots.figures(chain, 999)
    assert found["randwrite_q128"] == "1.00: reached" and found["node_memory"] == "150.5: **not reached**"
    assert found["snapshots"] == found["protect"] == "1.00: reached"
    for name in [*found, "sustained", "idle", "idle_memory", "stuck"]:
        assert text.count(f"<!-- {name} -->") == 1, name
    for part in ("tests", "sustained", "idle", "snapshots", "stuck"):
        assert text.count(f"<!-- {part}: begin -->") == text.count(f"<!-- {part}: end -->") == 1, part


def test_sustained_intervals():
    log = [f"{second * 1000}, {1000 if second <= 60 else 600}, 1, 4096, 0" for second in range(1, 121)]
    rates = sustained.rates(log, 120)
    assert len(rates) == 12
    assert rates[0] == 1000 and rates[5] == 1000 and rates[6] == 600
    assert sustained.last_over_first(rates) == pytest.approx(0.6)
    with pytest.raises(FioError):
        sustained.last_over_first(rates[:11])


def test_a_stalled_interval_counts_as_zero():
    assert sustained.rates(["1000, 500, 1, 4096, 0"], 20) == [500.0, 0.0]


def test_sustained_volume_fills_the_share():
    assert sustained.volume_bytes(8 * 2**30) * 2 / (24 * 2**30) == pytest.approx(0.7, abs=0.001)


@pytest.mark.parametrize("text, value", [("2G", 2**31), ("10GiB", 10 * 2**30), ("4096", 4096), ("64MB", 2**26)])
def test_sizes(text, value):
    assert parse_size(text) == value


@pytest.mark.parametrize("text", ["", "G", "1.5G", "-1G", "10 GiB", "1E"])
def test_bad_sizes(text):
    with pytest.raises(ValueError):
        parse_size(text)
