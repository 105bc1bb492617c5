"""Tests that need root are skipped, by name, for other users: end-to-end tests and those of the tools."""

import os

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root for loop devices and mounts"))
