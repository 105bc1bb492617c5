"""Whether a node is ready: not before its devices are open, or declared failed."""

import http.client
import json
import os

from tools.harness.cluster import HOST
from tools.harness.device import log_files
from tools.harness.process import wait_until


def ready(node):
    """What the node says to somebody who shows no grant: the status and the body."""
    connection = http.client.HTTPConnection(HOST, node.api_port, timeout=30)
    connection.request("GET", "/v1/ready")
    answer = connection.getresponse()
    status, body = answer.status, json.loads(answer.read())
    connection.close()
    return status, body


def becomes_ready(node):
    wait_until(lambda: ready(node) == (200, {"ready": True}), 60, f"{node.name} to be ready")


def test_a_node_is_ready_when_its_devices_are_open_or_declared_failed(make_cluster):
    cluster = make_cluster(device_size="512MiB", api_access="grants", node_options=["--device-timeout", "15s"])
    for node in cluster.nodes:
        becomes_ready(node)
    node = cluster.nodes[2]
    node.stop()
    # A file in the device's folder that nobody can read yet stands for a map that has to be read whole.
    layers = log_files(node)[0].parent / "layers.json"
    content = layers.read_bytes() if layers.exists() else b"[]"
    layers.unlink(missing_ok=True)
    os.mkfifo(layers)
    node.start()
    wait_until(lambda: node.log().count("is up:") == 2, 60, "the node to start")
    # Before, its data plane does not know the configuration yet.
    wait_until(lambda: "devices" in ready(node)[1].get("message", ""), 30, "the node to say what it waits for")
    status, body = ready(node)
    assert (status, body["code"]) == (503, "not_ready") and body["hint"], body
    connection = http.client.HTTPConnection(HOST, node.api_port, timeout=30)
    connection.request("GET", "/v1/health")
    assert connection.getresponse().status == 200, "it lives all the same"
    connection.close()

    def failure():
        devices = cluster.json_of_unhealthy("device", "list")
        return next(device["failure"] for device in devices if device["node_name"] == node.name)

    wait_until(lambda: failure() == "stopped", 60, "the device to be declared failed")
    becomes_ready(node)
    # Whoever opens this for writing waits for a reader, and the node is one.
    layers.write_bytes(content)
    cluster.wait_healthy()
    assert failure() is None
    becomes_ready(node)
