"""Plans: what to run, how long, on which targets. A plan is a YAML file; plans/ has those that come with the lab."""

from dataclasses import dataclass
from pathlib import Path

import yaml

PLANS = Path(__file__).parent / "plans"


class PlanError(Exception):
    """A plan that cannot be run as it is written; the message says what is wrong in it."""


@dataclass
class Plan:
    """Settings by experiment name. Each experiment's settings have at least `rounds` and `targets`."""

    name: str
    about: str
    experiments: dict

    def restricted(self, experiments=None, targets=None, rounds=None):
        """The plan with only these experiments, targets and rounds; None keeps what the plan says."""
        chosen = {}
        for name in experiments or self.experiments:
            if name not in self.experiments:
                raise PlanError(f"plan '{self.name}' has no experiment '{name}': {', '.join(self.experiments)}")
            settings = dict(self.experiments[name])
            if targets:
                settings["targets"] = list(targets)
            if rounds:
                settings["rounds"] = rounds
            chosen[name] = settings
        return Plan(self.name, self.about, chosen)


def load(name_or_path):
    """The plan of that name, or in that file."""
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = PLANS / f"{name_or_path}.yaml"
    if not path.exists():
        there = ", ".join(sorted(plan.stem for plan in PLANS.glob("*.yaml")))
        raise PlanError(f"there is no plan '{name_or_path}': {there}, or a file that ends in .yaml")
    try:
        text = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise PlanError(f"{path}: {error}") from None
    return _checked(path, text)


def _checked(path, text):
    if not isinstance(text, dict) or not isinstance(text.get("experiments"), dict):
        raise PlanError(f"{path}: a plan is a mapping with 'about' and 'experiments'")
    for name, settings in text["experiments"].items():
        if not isinstance(settings, dict):
            raise PlanError(f"{path}: experiment {name} needs settings")
        rounds, targets = settings.get("rounds"), settings.get("targets")
        if not isinstance(rounds, int) or rounds < 1:
            raise PlanError(f"{path}: {name}: 'rounds' must be a whole number from 1")
        if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
            raise PlanError(f"{path}: {name}: 'targets' must be a list of names")
    return Plan(path.stem, str(text.get("about", "")).strip(), text["experiments"])
