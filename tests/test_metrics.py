"""Prometheus scrapes a cluster: documents tell what it gets, dashboards give data, alerts fire when they should."""

import json
import math
import re
import subprocess
import urllib.request

import pytest
import yaml

from tools.harness.cluster import ROOT
from tools.harness.process import wait_until
from tools.harness.prometheus import HOST, Prometheus, queries

MONITORING = ROOT / "charts" / "azekura" / "monitoring"
DASHBOARDS = ["overview", "volume", "node", "device"]
# How fast a disk of the test's machine is says nothing of Azekura.
LEFT_OUT = {"AzekuraDeviceSlow"}
FOR = "3s"
GIVES_DATA_WITHIN_S = 40
FIRES_WITHIN_S = 60


def metrics_of(node):
    with urllib.request.urlopen(f"{node.api}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


def load(cluster):
    """A little of everything, until it is killed: by threads, since a process of a job would outlive that."""
    words = ["fio", "--name=load", "--ioengine=nbd", f"--uri={cluster.first.uri('vol1')}", "--rw=randrw", "--bs=4k"]
    words += ["--iodepth=4", "--size=2m", "--time_based=1", "--runtime=300", "--rate_iops=100", "--thread"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def short_rules(folder):
    """The rules, without the patience that they have with a cluster in service."""
    rules = yaml.safe_load((MONITORING / "azekura.rules.yaml").read_text())
    [group] = rules["groups"]
    group["rules"] = [{**rule, "for": FOR} for rule in group["rules"] if rule["alert"] not in LEFT_OUT]
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(rules))
    return file


@pytest.fixture
def scraped(cluster, folder):
    """A cluster under a little load, and the Prometheus that scrapes it."""
    cluster.cli("volume", "protect", "vol1", "--every", "1h", "--keep", "1d")
    process = load(cluster)
    targets = [f"{HOST}:{node.api_port}" for node in cluster.nodes]
    prometheus = Prometheus(folder / "prometheus", targets, short_rules(folder))
    yield cluster, prometheus
    prometheus.kill()
    process.kill()
    process.wait()


def lacking(prometheus):
    """Queries of dashboards that give no series, or no numbers."""
    for name in DASHBOARDS:
        for title, expression in queries(json.loads((MONITORING / f"{name}.json").read_text())):
            values = [value for _, value in prometheus.query(expression)]
            if all(math.isnan(value) for value in values):
                yield f"{name}, {title}: {expression}: {values}"


def test_what_prometheus_makes_of_a_cluster(scraped):
    cluster, prometheus = scraped

    wait_until(lambda: 'volume="vol1"' in metrics_of(cluster.first), GIVES_DATA_WITHIN_S, "the load's samples")
    text = metrics_of(cluster.first)
    served = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    documented = set(re.findall(r"^\| `(azekura_\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    assert served == documented
    assert 'volume="vol1"' not in metrics_of(cluster.nodes[1]), "nobody uses it there"
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr

    try:
        wait_until(lambda: not list(lacking(prometheus)), GIVES_DATA_WITHIN_S, "data of every query")
    except TimeoutError:
        pytest.fail("\n".join(lacking(prometheus)))
    assert {value for _, value in prometheus.query('up{job="azekura-api"}')} == {1.0}
    assert prometheus.query("min(azekura_cluster_healthy)") == [({}, 1.0)]
    assert prometheus.firing() == []

    cluster.nodes[2].kill()
    wanted = {"AzekuraNodeAway", "AzekuraCopiesMissing", "AzekuraNodeNotScraped"}

    def fired():
        return wanted <= {labels["alertname"] for labels in prometheus.firing()}

    wait_until(fired, FIRES_WITHIN_S, "the alerts of a node that is away")
    [away] = [labels for labels in prometheus.firing() if labels["alertname"] == "AzekuraNodeAway"]
    assert away["peer"] == "n3"
    assert prometheus.query("max(azekura_cluster_healthy)") == [({}, 0.0)]
