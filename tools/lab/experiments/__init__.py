"""The published studies, one file each. `known()` finds them: a new file needs no registration."""

import importlib
import pkgutil

from .base import Experiment

__all__ = ["Experiment", "known", "lookup"]


def known():
    """Name → the experiment, in the order of names."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        for thing in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(thing, type) and issubclass(thing, Experiment) and thing.name:
                found[thing.name] = thing()
    return dict(sorted(found.items()))


def lookup(name):
    """The experiment of that name; KeyError with the names that there are."""
    experiments = known()
    if name not in experiments:
        raise KeyError(f"there is no experiment '{name}': {', '.join(experiments)}")
    return experiments[name]
