"""The runner: going on after a cut, failures that stay where they are, the disk's reserve, rounds in turn."""

import pytest

from . import results, runner, targets
from .experiments.base import Experiment, rounds
from .plan import Plan
from .steps import Setup, Step
from .targets import Target


class Counting(Experiment):
    """Two tests a target; a test that is named in `breaks` fails."""

    name = "T"
    breaks = ()
    acted = []

    def steps(self, settings):
        for number, chosen in rounds(settings):
            for target in chosen:
                for test in ("first", "second"):
                    setup = Setup(target, 2**20, fill=False)
                    yield Step("T", "part", setup, test, number, 1.0, lambda live, test=test: self.act(live, test))

    def act(self, live, test):
        if test in self.breaks:
            raise RuntimeError(f"{test} is broken")
        self.acted.append((live.target.name, test))
        return {"iops": 1}

    def told(self, data):
        return "told"


class Fake(Target):
    """Notes that it was started and stopped."""

    name = "fake"
    log = []
    starts = True

    def start(self):
        if not self.starts:
            raise RuntimeError("no start")
        assert self.folder.is_dir()
        self.log.append("start")

    def stop(self):
        self.log.append("stop")


@pytest.fixture
def lab(monkeypatch, tmp_path):
    experiment = Counting()
    experiment.breaks, experiment.acted = (), []
    Fake.log, Fake.starts = [], True
    other = type("Other", (Fake,), {"name": "other"})
    kinds = {"fake": (Fake, {}), "other": (other, {})}
    monkeypatch.setattr(runner, "experiment", lambda name: experiment)
    monkeypatch.setattr(targets, "lookup", kinds.__getitem__)
    monkeypatch.setattr(runner.machine, "versions", dict)
    experiment.path = tmp_path / "r.jsonl"
    return experiment


def plan_of(*names, rounds=1):
    return Plan("p", "", {"T": {"rounds": rounds, "targets": list(names)}})


def test_everything_once_and_then_nothing(lab):
    assert runner.run(plan_of("fake"), results.Results(lab.path), []) == 0
    assert lab.acted == [("fake", "first"), ("fake", "second")]
    assert Fake.log == ["start", "stop"]
    assert runner.run(plan_of("fake"), results.Results(lab.path), []) == 0
    assert len(lab.acted) == 2, "what is measured is not measured again"


def test_a_cut_off_run_goes_on_where_it_stopped(lab, monkeypatch):
    def cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lab, "act", lambda live, test: cut() if test == "second" else {"iops": 1})
        with pytest.raises(KeyboardInterrupt):
            runner.run(plan_of("fake"), results.Results(lab.path), [])
    assert Fake.log == ["start", "stop"], "a cut stops the target too"
    runner.run(plan_of("fake"), results.Results(lab.path), [])
    assert lab.acted == [("fake", "second")]


def test_a_failed_test_does_not_end_the_others_and_is_repeated(lab):
    lab.breaks = ("first",)
    assert runner.run(plan_of("fake"), results.Results(lab.path), []) == 1
    assert lab.acted == [("fake", "second")]
    lab.breaks = ()
    assert runner.run(plan_of("fake"), results.Results(lab.path), []) == 0
    assert lab.acted == [("fake", "second"), ("fake", "first")]


def test_a_target_that_does_not_start_is_stopped_and_noted(lab):
    Fake.starts = False
    kept = results.Results(lab.path)
    assert runner.run(plan_of("fake"), kept, []) == 2
    assert Fake.log == ["stop"]
    assert all("no start" in step["failed"] for step in kept.steps("T"))


def test_every_other_round_goes_backwards(lab):
    runner.run(plan_of("fake", "other", rounds=2), results.Results(lab.path), [])
    assert [name for name, test in lab.acted if test == "first"] == ["fake", "other", "other", "fake"]


def test_the_disk_is_never_filled(lab, monkeypatch):
    monkeypatch.setattr(Fake, "disk_bytes", lambda self: 10**18)
    kept = results.Results(lab.path)
    assert runner.run(plan_of("fake"), kept, []) == 0
    assert all("GiB are free" in step["unavailable"] for step in kept.steps("T"))
    assert lab.acted == []
