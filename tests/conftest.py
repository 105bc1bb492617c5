"""Fixtures: clusters in folders of their own, and the cleaning up after whatever happens."""

import itertools
import shutil

import pytest

from tools.harness.cluster import Cluster, binary
from tools.harness.folders import TEST_BYTES, base_folder, lacking, new_folder, sweep

_volume_numbers = itertools.count(1)


def pytest_sessionstart(session):
    """Stops before the first test where the disk is too small: tests fail in odd ways when it fills up."""
    base = base_folder()
    sweep(base)
    lack = lacking(base, TEST_BYTES)
    if lack is not None:
        pytest.exit(lack, returncode=2)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Puts the nodes' last log lines under a failed test, and lets fixtures know how it went."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for cluster in getattr(item, "clusters", []):
            for node in cluster.nodes:
                if node.process is not None:
                    report.sections.append((f"log of {node.name}", node.process.log_tail(40)))


@pytest.fixture(scope="session", autouse=True)
def have_binary():
    assert binary().exists(), f"there is no {binary()}: build it (./dev test does) or set AZEKURA_BIN"


@pytest.fixture
def folder():
    """An empty folder with a short path, deleted after the test."""
    path = new_folder()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(params=["embedded", "etcd"])
def config(request):
    """Tests that use this run once with each configuration server."""
    return request.param


@pytest.fixture
def make_cluster(request, folder):
    """A function that starts a cluster; everything it started is gone after the test."""
    request.node.clusters = made = []

    def make(start=True, **options):
        cluster = Cluster(folder / f"c{len(made)}", **options)
        made.append(cluster)
        return cluster.start() if start else cluster

    yield make
    for cluster in made:
        cluster.destroy()


@pytest.fixture
def cluster(make_cluster):
    """Three nodes with the embedded configuration server and the volume vol1 (1 GiB, two copies)."""
    started = make_cluster()
    started.create_volume()
    return started


@pytest.fixture
def four_nodes(make_cluster):
    """Four nodes with etcd, which is on none of them, and the volume vol1 (1 GiB, two copies)."""
    started = make_cluster(nodes=4, config="etcd")
    started.create_volume()
    return started


@pytest.fixture
def each_cluster(make_cluster, config):
    """The same, once with each configuration server."""
    started = make_cluster(config=config)
    started.create_volume()
    return started


@pytest.fixture(scope="module")
def shared_cluster(request):
    """One cluster for the tests of a file that neither stop nodes nor damage anything; volumes are theirs to name."""
    path = new_folder()
    started = Cluster(path)
    try:
        started.start()
        yield started
    finally:
        started.destroy()
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def module_cluster():
    """A function that starts a cluster for all tests of a file."""
    path = new_folder()
    made = []

    def make(start=True, **options):
        made.append(Cluster(path / f"c{len(made)}", **options))
        return made[-1].start() if start else made[-1]

    yield make
    for cluster in made:
        cluster.destroy()
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def volume(request, shared_cluster):
    """A fresh volume of 1 GiB on the shared cluster, deleted after the test."""
    yield from _fresh_volume(request, shared_cluster)


@pytest.fixture
def shared_volume(request, shared_cluster):
    """The same, for clients of several nodes at once."""
    yield from _fresh_volume(request, shared_cluster, shared=True)


def _fresh_volume(request, cluster, **options):
    request.node.clusters = [cluster]
    name = f"v{next(_volume_numbers)}"
    cluster.create_volume(name, "1GiB", **options)
    yield name
    cluster.delete_volume(name)
