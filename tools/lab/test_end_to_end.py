"""Every experiment once on the raw file and on Azekura, as short as it goes: it proves the lab, it measures nothing."""

import os

import pytest

from . import plan, report, results, runner


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for loop devices, mounts and network namespaces")
def test_every_experiment(tmp_path):
    tiny = plan.load("tiny")
    kept = results.Results(tmp_path / "tiny.jsonl")
    failed = runner.run(tiny, kept, [])
    lines = [line for name in tiny.experiments for line in kept.steps(name)]
    assert not failed, [line["failed"] for line in lines if "failed" in line]
    left_out = {(line["target"], line["unavailable"]) for line in lines if "unavailable" in line}
    assert left_out <= {("raw", "has one device")}, left_out
    ours = [line for line in lines if line["target"] == "azekura" and "data" in line]
    assert {line["experiment"] for line in ours} == set(tiny.experiments)
    assert all(line["data"]["server_cpu_s"] >= 0 and line["data"]["resident_mib"] > 1 for line in ours)
    (over_line,) = [line for line in ours if line["part"] == "gbe" and line["test"] == "write"]
    assert over_line["data"]["mib_s"] < 130, "a copy goes over a line of 1 Gbit/s"
    page, _ = report.write(results.Results(kept.path), tmp_path / "report")
    assert page.read_text().count("<section") == len(tiny.experiments) + 1
