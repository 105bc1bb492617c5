"""The configuration server that a node has moves to another node, and from plain connections to TLS."""

import json
import shutil

from tests.test_embedded_tls import is_let_in
from tests.test_https import authority, cli
from tests.test_join import token, with_token
from tests.test_shut_out import certificate_of
from tests.test_start import start_that_fails
from tools.harness.cluster import HOST, run_cli
from tools.harness.process import wait_until
from tools.harness.run import run

OPENS_WITHIN_S = 120


def written(node, number):
    run("qemu-io", "-f", "raw", "-c", f"write -P {number} {number}M 1M", node.uri())


def reads(node, numbers):
    words = [word for number in numbers for word in ("-c", f"read -P {number} {number}M 1M")]
    run("qemu-io", "-f", "raw", *words, node.uri())


def test_the_serving_node_is_gone_for_good(make_cluster, tmp_path):
    """docs/operations/configuration-security.md: another node serves a backup, and what came later is in its copy."""
    cluster = make_cluster(transport="tls", api_access="grants", device_size="512MiB", start=False, config_tls=True)
    first, second, third = cluster.nodes
    first.start()
    wait_until(lambda: cli(first, "status").returncode in (0, 1), 60, "the first node")
    authority(cluster)
    for node in (second, third):
        with_token(node, first, token(cluster, tmp_path, node.name))
    cluster.start()
    cluster.create_volume(size="64MiB", copies=2)
    written(second, 1)
    # A backup is a copy of the database while its node is stopped.
    first.stop()
    shutil.copy(first.data / "config.redb", tmp_path / "config.redb")
    first.start()
    cluster.wait_healthy()
    written(second, 2)
    cluster.cli("volume", "create", "later", "64MiB")
    cluster.wait_healthy()
    devices = {device["node_name"]: device["id"] for device in cluster.json("device", "list")}
    for node in (first, second, third):
        node.stop()
    shutil.rmtree(first.data)

    # Before the configuration is said to be restored, it is not believed.
    shutil.copy(tmp_path / "config.redb", second.data / "config.redb")
    served = ["--serve-config", f"{HOST}:{cluster.config_port}", "--serve-config-transport", "tls"]
    second.options = served
    said = start_that_fails(second)
    assert "the configuration went back" in said, said
    told = run_cli("cluster", "restored", "--data", second.data)
    assert told.returncode == 0, told.stderr
    told = run_cli("cluster", "restored", "--data", second.data, "--without", devices["n1"])
    assert told.returncode == 0, told.stderr
    third.options = []
    cluster.nodes = [second, third]
    second.start()
    third.start()
    wait_until(lambda: "later" in cli(second, "volume", "list").stdout, OPENS_WITHIN_S, "what came after the backup")
    said = []

    def removed():
        done = cli(second, "node", "remove", "n1", "--lost")
        said.append(done.stderr)
        return done.returncode == 0

    try:
        wait_until(removed, 60, "n1 to be removed")
    except TimeoutError:
        raise AssertionError(said[-1]) from None
    cluster.wait_healthy()
    reads(second, [1, 2])
    reads(third, [1, 2])
    written(third, 3)
    # The key of the machine that is gone opens nothing; that of a node does.
    assert is_let_in(cluster.config_port, certificate_of(third, tmp_path))
    status = json.loads(cli(third, "status", "--json").stdout)
    assert status["configuration"] == cluster.config_url, status


def test_plain_connections_are_given_up_for_tls(make_cluster, tmp_path):
    """Nodes that had http:// and get https:// are known by the keys that they have; nobody needs a token."""
    cluster = make_cluster(transport="tls", api_access="grants", device_size="512MiB", nodes=2, start=False)
    first, second = cluster.nodes
    first.start()
    wait_until(lambda: cli(first, "status").returncode in (0, 1), 60, "the first node")
    authority(cluster)
    with_token(second, first, token(cluster, tmp_path))
    cluster.start()
    second.options = []
    cluster.create_volume(size="64MiB")
    written(second, 1)
    cluster.config_tls = True
    for node in (first, second):
        node.stop()
    first.start()
    # One that still asks without TLS is not answered.
    second.config = cluster.config_url.replace("https://", "http://")
    second.start()
    wait_until(lambda: "the configuration was not shown to" in first.log(), 60, "n2 to be refused")
    wait_until(lambda: "no configuration server answers" in second.log(), 60, "n2 to say so")
    second.stop()
    second.config = None
    second.start()
    cluster.wait_healthy()
    reads(first, [1])
    written(second, 2)
    reads(first, [1, 2])


def test_who_is_of_another_cluster_is_not_let_in(make_cluster, tmp_path):
    """Tools of etcd speak with the server as a node does, if they show a node's key."""
    (tmp_path / "other").mkdir()
    cluster = make_cluster(transport="tls", api_access="grants", device_size="512MiB", nodes=1, config_tls=True)
    other = make_cluster(transport="tls", api_access="grants", device_size="512MiB", nodes=1, config_tls=True)
    foreign = certificate_of(other.first, tmp_path / "other")
    own = certificate_of(cluster.first, tmp_path)
    assert is_let_in(cluster.config_port, own) and is_let_in(other.config_port, foreign)
    assert not is_let_in(cluster.config_port, foreign) and not is_let_in(other.config_port, own)

    def etcdctl(certificate, key):
        command = ["etcdctl", "--endpoints", cluster.config_url, "--insecure-skip-tls-verify", "--dial-timeout", "3s"]
        command += ["--command-timeout", "5s", "--cert", certificate, "--key", key, "get", "--prefix", "/azekura/"]
        return run(*command, "--keys-only", check=False)

    assert "/azekura/v1/cluster" in etcdctl(*own).stdout
    refused = etcdctl(*foreign)
    assert refused.returncode != 0 and "/azekura/" not in refused.stdout
