"""For the end-to-end tests and those of the tools.

Tests that need root are skipped, by name, for other users. Most tests wait more than they work, so three files run at
a time (`pytest -n 3 --dist loadfile --alone without`), and those that are marked `alone` afterwards (`--alone only`).
"""

import os

import pytest


def pytest_addoption(parser):
    parser.addoption("--alone", choices=["without", "only"], help="leave out what is marked `alone`, or run only that")


def pytest_collection_modifyitems(config, items):
    wanted = config.getoption("--alone")
    if wanted is not None:
        chosen = [item for item in items if (item.get_closest_marker("alone") is not None) == (wanted == "only")]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root for loop devices and mounts"))
