"""Logs as JSON: of nodes over a start, clients, a peer that is killed and a stop; of the CSI driver; and as text."""

import json
import re
from datetime import datetime

import pytest

from tests.test_grants import ask, create
from tests.test_transport import change_node
from tools.harness.cluster import HOST, run_cli
from tools.harness.csi import TOOLS, CsiError, Driver
from tools.harness.nbd import Client
from tools.harness.process import wait_until

LEVELS = {"ERROR", "WARN", "INFO", "DEBUG"}
JSON = ["--log", "json"]
# What sentences name, and the field that has to have it, too.
NAMED = {
    "volume": re.compile(r"\bvolume (?P<name>vol\w+)\b|/v1/volumes/(?P<asked>[^/ ]+)"),
    "device": re.compile(r"\bdevice (?P<name>\d+)\b"),
    "group": re.compile(r"\bgroup (?P<name>\d+)\b"),
    "layer": re.compile(r"\blayer (?P<name>\d+)\b"),
    "peer": re.compile(r"\b(?:connection (?:with|of)|connect to) node (?P<name>\d+)\b"),
}


def parsed(log):
    """The lines of a log: each is an object with what every line has, and with what its sentence names."""
    lines = [json.loads(line) for line in log.splitlines() if not line.startswith("---- start: ")]
    for line in lines:
        assert datetime.fromisoformat(line["timestamp"]).utcoffset().total_seconds() == 0, line
        assert line["level"] in LEVELS and line["message"] and line["target"], line
        for field, pattern in NAMED.items():
            named = {match["name"] or match.groupdict().get("asked") for match in pattern.finditer(line["message"])}
            assert not named or line.get(field) in named, f"{field}: {line}"
    return lines


def test_each_line_is_an_object_that_names_what_it_is_about(make_cluster):
    cluster = make_cluster(
        config="etcd", node_options=[*JSON, "--trusted-config"], api_access="grants", transport="tls"
    )
    one, two, three = cluster.nodes
    token = create(cluster, "ann", "user")
    wrong = "azekura1-" + "x" * 60
    assert ask(one, "GET", "/v1/volumes", wrong)[0] == 401
    words = ["host", "add", "h1", "--iqn", "iqn.2026-01.example:h1", "--chap", "--chap-user", "u", "--json"]
    # Until this node has the authority's key, it says to ask again in a moment.
    made = wait_until(lambda: run_cli(*words, api=one.api).stdout, 30, "the authority's key")
    cluster.create_volume()
    with Client(two.uri()) as client:
        client.write(0, b"x" * 4096)
        # Taken away from its client.
        cluster.cli("volume", "attach", "vol1", "--node", "n1", "--force")
        wait_until(lambda: "not attached here any more" in two.log(), 30, "the node tells of it")
    three.kill()
    three.start()
    cluster.wait_healthy()
    # Its key is no longer that of the node.
    number, _ = change_node(three, keys=["00" * 32])
    wait_until(lambda: f"closing a connection of node {number}" in one.log(), 60, "a line about the peer")
    for node in cluster.nodes:
        node.stop()
    told = {node.name: parsed(node.log()) for node in cluster.nodes}
    everything = [line for lines in told.values() for line in lines]
    for name, lines in told.items():
        messages = [line["message"] for line in lines]
        assert any(message.startswith("node ") and " is up" in message for message in messages), name
        assert any("device" in line and line["message"].endswith("is open") for line in lines), name
        assert "stopping" in messages, name
    assert any(line.get("volume") == "vol1" and "VolumeCreate" in line["message"] for line in told["n1"])
    taken = [line for line in told["n2"] if "not attached here any more" in line["message"]]
    assert [line["volume"] for line in taken] == ["vol1"]
    assert any(line.get("peer") == str(number) for line in told["n1"])
    text = json.dumps(everything)
    chap = re.search(r'"secret": *"([^"]{12,})"', made)[1]
    for secret in (token[16:59], wrong, chap, "PRIVATE KEY"):
        assert secret not in text


def test_text_is_the_sentence_alone(make_cluster):
    cluster = make_cluster(nodes=1)
    cluster.create_volume(copies=1)
    cluster.first.stop()
    lines = cluster.first.log().splitlines()
    [opened] = [line for line in lines if line.endswith(" is open")]
    assert re.fullmatch(r"\S+Z +INFO azekura_server::bridge::reports: device 1 is open", opened), opened
    assert not [line for line in lines if "volume=" in line or "device=" in line]


def test_the_end_of_a_node_that_fails_is_an_object(make_cluster):
    cluster = make_cluster(nodes=1)
    second = run_cli(*cluster.first.arguments(), *JSON)
    assert second.returncode == 1
    [*_, last] = parsed(second.stderr)
    assert last["level"] == "ERROR" and str(cluster.first.data) in last["message"], last
    # What the options are refused for is said before there is a log.
    refused = run_cli(*cluster.first.arguments(), "--log", "xml")
    assert refused.returncode != 0 and "xml" in refused.stderr and "json" in refused.stderr


@pytest.mark.skipif(not (TOOLS / "csi-call").exists(), reason="there is no csi-call: ./dev test has it")
def test_what_the_csi_driver_refuses_names_the_volume(make_cluster):
    cluster = make_cluster(nodes=1)
    driver = Driver(cluster.first, "controller", options=JSON)
    driver.start()
    try:
        with pytest.raises(CsiError):
            driver.call("Controller/ControllerGetVolume", volume_id="vol7")
    finally:
        driver.stop()
    lines = parsed(driver.process.log_text())
    assert lines[0]["message"].startswith("serving at ")
    [refused] = [line for line in lines if line.get("volume") == "vol7"]
    assert refused["level"] == "WARN" and "NotFound" in refused["message"]
    failed = run_cli("csi", "controller", "--endpoint", f"tcp://{HOST}:1", *JSON)
    assert failed.returncode == 1
    [line] = parsed(failed.stderr)
    assert line["level"] == "ERROR" and "--endpoint" in line["hint"]
