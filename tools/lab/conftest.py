"""Results to make reports of: invented lines for the report's tests alone, shown nowhere else."""

import pytest

from . import plan, report, results, runner
from .experiments import lookup

FACTS = {
    "processor": "a processor",
    "cores": 2,
    "memory_gib": 4,
    "kernel": "6",
    "file_system": "ext2/ext3",
    "system": "Debian",
    "load_before": 0.1,
}


def fio_data(number):
    series = [
        {"t": t, "cpu": 0.5, "rss": 2**27, "cache_hits": 5.0 * t, "cache_misses": 10.0, "read_0": 1e6, "written_1": 2e6}
        for t in (0.5, 1.0, 1.5)
    ]
    return {
        "iops": 1000.0 + number,
        "mib_s": 4.0 + number,
        "requests": 1000,
        "latency_mean_us": 100.0,
        "latency_p99_us": 300.0,
        "client_cpu_us": 9.0,
        "server_cpu_us": 20.0,
        "resident_mib": 128.0,
        "series": series,
        "finished": [3, 4],
        "bytes_each": [3 * 2**25, 4 * 2**25],
        "iops_each": [500.0, 400.0],
        "line_mib_s": 112.5,
    }


def bonnie_data(number):
    return {
        "finishing_s": [5.0 + number, 6.0],
        "longest_s": 6.0 + number,
        "deviation_s": 0.5,
        "server_cpu_s": 2.0,
        "resident_mib": 128.0,
        "series": [],
    }


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """Results of the plan 'quick' with four targets and two rounds, one target not available."""
    chosen = quick()
    found = results.Results(tmp_path_factory.mktemp("results") / "quick.jsonl")
    session = {"kind": "session", "began": "2026-01-01T00:00:00+0000", "plan": "quick", "about": "short"}
    found.append({**session, "machine": FACTS, "versions": {"fio": "fio-3.33"}, "settings": chosen.experiments})
    setup = {"kind": "setup", "began": "2026-01-01T00:00:01+0000", "target": "azekura", "versions": {"azekura": "0"}}
    found.append(setup)
    for number, (mark, step) in enumerate(runner.steps_of(chosen)):
        line = runner.step_head(step, mark)
        if step.setup.target == "ceph" and step.experiment == "E0":
            line["unavailable"] = "needs <root> & more"
        else:
            line["data"] = bonnie_data(number % 7) if step.experiment == "E4" else fio_data(number % 100)
            assert lookup(step.experiment).told(line["data"])
        found.lines.append(line)
    return found


@pytest.fixture(scope="session")
def reported(kept, tmp_path_factory):
    """The folder of the report on those results."""
    folder = tmp_path_factory.mktemp("report")
    report.write(kept, folder)
    return folder


def quick():
    return plan.load("quick").restricted(targets=["raw", "qemu-nbd", "ceph", "azekura"], rounds=2)
