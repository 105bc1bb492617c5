"""The systems under test, one file each. `known()` finds them: a new file needs no registration."""

import importlib
import pkgutil

from .base import Place, Target

__all__ = ["Place", "Target", "known", "lookup"]


def known():
    """Variant name → (class, options), sorted by name."""
    variants = {}
    for module in pkgutil.iter_modules(__path__):
        for thing in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(thing, type) and issubclass(thing, Target) and thing.__module__.endswith(f".{module.name}"):
                for name, options in thing.variants.items():
                    variants[name] = (thing, options)
    return dict(sorted(variants.items()))


def lookup(name):
    """(class, options) of a variant; KeyError with the names that there are."""
    variants = known()
    if name not in variants:
        raise KeyError(f"there is no target '{name}': {', '.join(variants)}")
    return variants[name]
