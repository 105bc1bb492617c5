"""Plans: those that come with the lab are complete, and what is wrong in one is said."""

import pytest

from . import experiments, plan, runner, targets


@pytest.mark.parametrize("name", ["tiny", "quick", "full"])
def test_every_plan_makes_steps_for_targets_that_exist(name):
    loaded = plan.load(name)
    assert list(loaded.experiments) == list(experiments.known())
    steps = [step for _, step in runner.steps_of(loaded)]
    assert {step.experiment for step in steps} == set(loaded.experiments)
    assert {step.setup.target for step in steps} <= set(targets.known())
    keys = [step.key for step in steps]
    assert len(keys) == len(set(keys))


def test_quick_keeps_its_promise():
    """Each experiment within ten minutes for three targets, by the lab's own estimate."""
    for name in experiments.known():
        chosen = plan.load("quick").restricted([name], ["qemu-nbd", "ceph", "azekura"])
        assert runner.estimate_s(runner.steps_of(chosen)) <= 600, name


def test_restriction():
    loaded = plan.load("tiny").restricted(["E0"], ["raw"], 2)
    assert list(loaded.experiments) == ["E0"]
    assert loaded.experiments["E0"]["targets"] == ["raw"] and loaded.experiments["E0"]["rounds"] == 2
    with pytest.raises(plan.PlanError, match="E9"):
        plan.load("tiny").restricted(["E9"])


@pytest.mark.parametrize(
    "text, told",
    [
        ("[", "plan.yaml"),
        ("about: x\n", "experiments"),
        ("experiments: {E0: 5}\n", "E0 needs settings"),
        ("experiments: {E0: {rounds: 0, targets: [raw]}}\n", "rounds"),
        ("experiments: {E0: {rounds: 1, targets: raw}}\n", "targets"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, told):
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(plan.PlanError, match=told):
        plan.load(path)


def test_a_plan_that_is_not_there():
    with pytest.raises(plan.PlanError, match="quick"):
        plan.load("no-such-plan")
