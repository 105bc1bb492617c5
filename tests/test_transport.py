"""TLS between nodes: nothing of what they say can be read on the way, and who has not a node's key is told nothing."""

import base64
import json
import subprocess
import urllib.request

import pytest

from tools.harness.acked_writer import Ledger, Writer
from tools.harness.process import wait_until
from tools.harness.relay import Relay
from tools.harness.run import run

# The first bytes of a frame (docs/formats/wire.md), and of a TLS record with a handshake's message (RFC 8446, 5.1).
FRAME, HANDSHAKE = b"AZKw", b"\x16\x03"


def change_node(node, **fields):
    """Changes a node's record in etcd, as an operator could who has nothing else."""

    def ask(what, **body):
        data = json.dumps({name: base64.b64encode(value).decode() for name, value in body.items()}).encode()
        with urllib.request.urlopen(f"{cluster.config_url}/v3/kv/{what}", data, timeout=10) as answer:
            return json.load(answer)

    cluster = node.cluster
    numbers = {listed["name"]: listed["id"] for listed in cluster.json("node", "list")}
    key = f"/azekura/v1/nodes/{numbers[node.name]}".encode()
    record = json.loads(base64.b64decode(ask("range", key=key)["kvs"][0]["value"]))
    ask("put", key=key, value=json.dumps({**record, **fields}).encode())
    return numbers[node.name], record


def connections_to(node):
    """The connections of other nodes with this one, by their ports."""
    port, found = f":{node.listen_port:04X}", set()
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            _, local, remote, state, *_ = line.split()
            if local.endswith(port) and state == "01":
                found.add(remote)
    return found


@pytest.mark.parametrize("transport", ["plain", "tls"])
def test_what_nodes_say_can_not_be_read_on_the_way(make_cluster, transport):
    cluster = make_cluster(nodes=2, config="etcd", transport=transport)
    cluster.create_volume()
    node, other = cluster.nodes
    assert cluster.json("status")["transport"] == transport
    assert not any("is for new clusters" in each.log() for each in cluster.nodes), "all know it at their start"
    relay = Relay(other.listen_port)
    change_node(other, data_address=relay.address)
    node.stop()
    node.start()
    cluster.wait_healthy()
    run("qemu-io", "-f", "raw", "-c", "write -P 0xa7 0 4M", node.uri())
    run("qemu-io", "-f", "raw", "-c", "read -P 0xa7 0 4M", other.uri())
    recorded = b"".join(bytes(stream) for stream in relay.streams)
    assert len(recorded) > 4 * 2**20, "the blocks have come this way"
    readable = transport == "plain"
    assert (FRAME in recorded, bytes([0xA7] * 64) in recorded) == (readable, readable)
    begins = {bytes(stream[: len(HANDSHAKE)]) for stream in relay.streams if stream}
    assert begins == {FRAME[: len(HANDSHAKE)] if readable else HANDSHAKE}
    relay.close()


def test_a_node_without_a_listed_key_gets_nothing_until_it_is_listed_again(make_cluster):
    cluster = make_cluster(config="etcd", transport="tls")
    cluster.create_volume(shared=True)
    # It still reaches the configuration, where it may go on being primary: see docs/security.md.
    out = cluster.nodes[2]
    run("qemu-io", "-f", "raw", "-c", "write -P 5 0 64M", cluster.first.uri())
    number, record = change_node(out, keys=["00" * 32])
    wait_until(lambda: not connections_to(out), 30, "the others to hang up on the node that is shut out")
    wait_until(lambda: not cluster.json_of_unhealthy("status")["healthy"], 30, "the cluster to miss its copies")
    with pytest.raises((subprocess.TimeoutExpired, AssertionError)):
        run("qemu-io", "-f", "raw", "-c", "read -P 5 0 64M", out.uri(), within_s=4)
    wait_until(lambda: f"closing a connection of node {number}" in cluster.first.log(), 30, "a line that says why")
    change_node(out, keys=record["keys"])
    cluster.wait_healthy()
    run("qemu-io", "-f", "raw", "-c", "read -P 5 0 64M", out.uri())


def test_a_cluster_that_serves_is_switched_to_tls_and_back(make_cluster):
    cluster = make_cluster(config="etcd")
    cluster.create_volume()
    ledger = Ledger(blocks=1500, stride=128)
    writer = Writer(cluster.first.uri(), ledger, seed=1)
    writer.start()
    writer.go_on()

    def switch(transport):
        assert transport in cluster.cli("cluster", "set", "transport", transport)
        assert f"transport      {transport}" in cluster.cli("status", "--wait", 60)
        writer.go_on()

    switch("both")
    before = {node.name: connections_to(node) for node in cluster.nodes}
    switch("tls")
    for node in cluster.nodes:
        wait_until(lambda node=node: not before[node.name] & connections_to(node), 60, "plain connections to end")
    writer.go_on(1000)
    for node in cluster.nodes[1:]:
        node.kill()
        node.start()
        cluster.wait_healthy()
        writer.go_on()
    switch("both")
    switch("plain")
    writer.finish()
    cluster.wait_healthy()
    for node in cluster.nodes:
        faults = ledger.check(node.uri())
        assert not faults, f"{node.name}: {faults[:5]}"
