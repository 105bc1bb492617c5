"""A machine that is not trusted any more: nobody talks with it, it gets no secrets, its clients' writes end."""

import json
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest

from tests.test_https import authority, cli, volumes
from tests.test_identity import key_file, name_of
from tests.test_start import start_that_fails
from tests.test_transport import connections_to
from tools.harness.cluster import HOST
from tools.harness.process import wait_until
from tools.harness.run import run


@pytest.fixture
def cluster(make_cluster):
    """Three nodes with etcd that prove their keys, of an API that asks for grants."""
    made = make_cluster(config="etcd", transport="tls")
    made.create_volume()
    cli(made.first, "cluster", "set", "api-access", "grants")
    made.api_access = "grants"
    return made


def certificate_of(node, folder):
    """The node's key, and a certificate by itself, as whoever has its machine can make it."""
    key, certificate = folder / "stolen.key", folder / "stolen.pem"
    run("openssl", "pkey", "-inform", "DER", "-in", key_file(node), "-out", key)
    run("openssl", "req", "-x509", "-key", key, "-subj", "/CN=x", "-days", "2", "-out", certificate)
    return certificate, key


def trusts(node, certificate, token):
    """Whether a program that knows the authority with this certificate is answered by the node."""
    try:
        return [volume["name"] for volume in volumes(node, certificate, token)] == ["vol1"]
    except (urllib.error.URLError, ssl.SSLError):
        return False


def authority_key(node, stolen, number):
    """What a node says to whoever asks for the authority's key with a stolen one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(*stolen)
    url = f"https://{HOST}:{node.api_port}/v1/node/authority?number={number}"
    try:
        with urllib.request.urlopen(url, context=context, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_node_that_is_shut_out_has_nothing_of_the_cluster_any_more(cluster, tmp_path):
    first, _, out = cluster.nodes
    shown = authority(cluster)
    token = cluster.cli("token", "create", "ann", "--role", "user").strip()
    wait_until(lambda: trusts(first, shown["certificate"], token), 30, "a certificate by the authority")
    stolen = certificate_of(out, tmp_path)
    assert authority_key(first, stolen, 1) == 200
    # A client of the node has the volume.
    run("qemu-io", "-f", "raw", "-c", "write -P 1 0 1M", out.uri())
    cluster.cli("volume", "attach", "vol1", "--node", "n3")
    # Its process does not hear of it for now, as one would not that somebody has changed.
    out.process.pause()
    writing = subprocess.Popen(["qemu-io", "-f", "raw", "-c", "write -P 6 0 1M", out.uri()], stdout=subprocess.PIPE)
    done = json.loads(cli(first, "node", "shut-out", "n3", "--json").stdout)
    assert (done["node"], done["authority"]["number"]) == ("n3", 2), done
    assert done["detached"] == ["vol1"], done
    assert [grant["name"] for grant in done["grants"]] == ["ann"]
    assert any("configuration server" in undone for undone in done["undone"])
    for node in cluster.nodes[:2]:
        wait_until(lambda node=node: not connections_to(out), 30, "the others to hang up")
        for number in (1, 2):
            wait_until(lambda n=number, node=node: authority_key(node, stolen, n) == 401, 30, "no answer to its key")
    # Clients know the others by another authority, for which the former one does not vouch.
    made = done["authority"]["certificate"]
    for node in cluster.nodes[:2]:
        wait_until(lambda node=node: trusts(node, made, token), 30, f"a certificate of {node.name} by the next one")
        assert not trusts(node, shown["certificate"], token)
    # What its client writes does not come behind what others write.
    run("qemu-io", "-f", "raw", "-c", "write -P 2 0 1M", first.uri())
    out.process.resume()
    wait_until(lambda: not out.alive, 60, "the process to end")
    assert "was shut out of the cluster by the node's user" in out.log()
    writing.wait(60)
    run("qemu-io", "-f", "raw", "-c", "read -P 2 0 1M", first.uri())
    listed = {node["name"]: node for node in cluster.json("node", "list")}
    assert (listed["n3"]["shut_out"], listed["n3"]["alive"], listed["n1"]["shut_out"]) == (True, False, False)
    assert "SHUT OUT" in cluster.cli("node", "list")
    assert "node n3 is shut out" in " ".join(cluster.json_of_unhealthy("status")["notes"])

    # No start brings it back, and neither does another key.
    former = key_file(out).read_bytes()
    for options in ([], ["--replace-key"]):
        out.options = options
        said = start_that_fails(out)
        assert "let-in" in said, said
    out.options = []
    key_file(out).unlink()
    said = start_that_fails(out)
    key = name_of(key_file(out).read_bytes())
    assert key in said, said
    refused = cli(first, "node", "let-in", "n3", "--key", name_of(former))
    assert refused.returncode == 4 and "--same-keys" in refused.stderr, refused.stderr
    assert cli(first, "node", "let-in", "n3", "--key", key).returncode == 0
    out.start()
    wait_until(lambda: cluster.json_of_unhealthy("status")["healthy"], 90, "the cluster with all nodes")
    run("qemu-io", "-f", "raw", "-c", "read -P 2 0 1M", first.uri())
    assert authority_key(first, stolen, 2) == 401, "the stolen key stays nothing"
    operations = [record["operation"] for record in cluster.json("audit")]
    assert operations[-2:] == ["NodeShutOut", "NodeLetIn"], operations


def test_a_node_does_not_shut_itself_out_and_comes_back_from_a_mistake(cluster):
    first, other, _ = cluster.nodes
    refused = cli(first, "node", "shut-out", "n1")
    assert refused.returncode == 4 and "ask another node" in refused.stderr, refused.stderr
    assert "n2 is shut out" in cli(first, "node", "shut-out", "n2").stdout
    wait_until(lambda: not other.alive, 60, "the process to end")
    assert cli(first, "node", "let-in", "n2").returncode == 2
    assert cli(first, "node", "let-in", "n2", "--same-keys").returncode == 0
    other.start()
    wait_until(lambda: cluster.json_of_unhealthy("status")["healthy"], 90, "the cluster with all nodes")
