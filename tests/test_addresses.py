"""docs/operations/addresses.md: nodes and the configuration's server get other addresses while a client writes."""

from tools.harness.acked_writer import Ledger, Writer
from tools.harness.cluster import HOST, run_cli
from tools.harness.nbd import Client
from tools.harness.process import free_port, wait_until


def move(cluster, node):
    """Restarts a node on another address of this machine, with other ports."""
    node.stop()
    # All of 127.0.0.0/8 is this machine.
    node.host = f"127.0.7.{node.number}"
    node.listen_port, node.api_port, node.nbd_port = free_port(), free_port(), free_port()
    node.start()
    cluster.wait_healthy()


def test_all_nodes_move_while_a_client_writes(make_cluster, monkeypatch):
    options = {"transport": "tls", "api_access": "grants", "node_options": ["--trusted-config"]}
    cluster = make_cluster(config="etcd", device_size="512MiB", **options)
    cluster.create_volume(size="256MiB", shared=True)
    token = cluster.folder / "token"
    token.write_text(cluster.cli("token", "create", "ann", "--role", "admin"))
    token.chmod(0o600)
    authority = cluster.folder / "ca.pem"
    authority.write_text(cluster.cli("ca", "show"))
    # They count where there is no own socket.
    monkeypatch.setenv("AZEKURA_TOKEN_FILE", str(token))
    monkeypatch.setenv("AZEKURA_CA_FILE", str(authority))
    ledger = Ledger(blocks=500, stride=16)
    for node in cluster.nodes:
        # Its own client would have to come again; here one of another node goes on.
        other = cluster.nodes[node.number % len(cluster.nodes)]
        writer = Writer(other.uri(), ledger, seed=node.number)
        writer.start()
        writer.go_on(200)
        move(cluster, node)
        writer.go_on(200)
        writer.finish()
    for node in cluster.nodes:
        assert ledger.check(node.uri()) == []
        shown = next(view for view in cluster.json("node", "list") if view["name"] == node.name)
        assert (shown["data_address"], shown["api_address"]) == (
            f"{node.host}:{node.listen_port}",
            f"{node.host}:{node.api_port}",
        )
        # Its certificate names the address that it has now, and tokens count as before.
        answer = run_cli("volume", "list", api=f"https://{node.host}:{node.api_port}")
        assert answer.returncode == 0 and "vol1" in answer.stdout, answer.stderr


def test_the_configuration_is_served_at_another_address(make_cluster):
    cluster = make_cluster(device_size="512MiB")
    first, *others = cluster.nodes
    cluster.create_volume(size="256MiB", shared=True)
    former, port = cluster.config_url, free_port()
    new = f"http://{HOST}:{port}"
    ledger = Ledger(blocks=500, stride=16)

    def restart(nodes, config):
        for node in nodes:
            node.stop()
            node.config = config
            node.start()
            cluster.wait_healthy()

    restart(others, f"{former},{new}")
    writer = Writer(others[0].uri(), ledger, seed=1)
    writer.start()
    writer.go_on(200)
    first.stop()
    writer.go_on(200)
    cluster.config_port = port
    first.start()
    cluster.wait_healthy()
    writer.go_on(200)
    cluster.cli("volume", "create", "vol2", "64MiB", node=others[1])
    writer.finish()
    restart(others, new)
    assert ledger.check(others[0].uri()) == []
    names = {volume["name"] for volume in cluster.json("volume", "list", node=others[1])}
    assert names == {"vol1", "vol2"}
    # Who only knows the former address says so, and which one that is.
    others[0].stop()
    others[0].config = former
    others[0].start()
    wait_until(lambda: former.removeprefix("http://") in others[0].log(), 60, "a word about the address")
    others[0].kill()
    with Client(others[1].uri()) as client:
        client.read(0, 4096)
