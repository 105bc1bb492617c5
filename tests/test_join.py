"""A machine becomes a node of a guarded cluster with a join token, which is good once, in time, for this cluster."""

import json

import pytest

from tests.test_grants import ask
from tests.test_https import authority, cli, url
from tests.test_start import start_that_fails
from tools.harness.process import wait_until


@pytest.fixture
def guarded(make_cluster):
    """Three nodes that prove their keys to each other, of an API that asks for grants; the third is not there yet."""
    made = make_cluster(config="etcd", transport="tls", api_access="grants", start=False)
    made.start_etcd()
    made.first.start()
    wait_until(lambda: cli(made.first, "status").stdout, 60, "the first node")
    authority(made)
    return made


def token(cluster, folder, name="t", *options, text=None):
    """A file with a join token that the first node has made."""
    made = cli(cluster.first, "token", "create", name, "--join", *options)
    assert made.returncode == 0, made.stderr
    file = folder / f"{name}.token"
    file.write_text(text or made.stdout)
    file.chmod(0o600)
    return file


def with_token(node, asked, file):
    node.options = ["--join", url(asked), "--token-file", str(file)]
    return node


def test_a_guarded_cluster_takes_machines_with_a_token(guarded, tmp_path):
    first, second, third = guarded.nodes
    said = start_that_fails(second)
    assert "join token" in said and "azekura token create n2 --join" in said, said
    file = token(guarded, tmp_path)
    text = file.read_text().strip()
    assert text.startswith("azkj_") and len(text) == 108
    listed = json.loads(cli(first, "token", "list", "--json").stdout)
    assert [(grant["name"], grant["role"]) for grant in listed] == [("t", "join")] and listed[0]["until"]
    # It opens nothing else.
    assert ask(first, "GET", "/v1/volumes", text)[0] == 403
    assert ask(first, "GET", "/v1/node/authority?number=1", text)[0] == 403

    # What is not sent: a token that was cut, and one to somebody who has not proved to be of its cluster.
    cut = tmp_path / "cut.token"
    cut.write_text(text[:60])
    cut.chmod(0o600)
    assert "was it cut?" in start_that_fails(with_token(second, first, cut))
    file.chmod(0o644)
    assert "chmod 600" in start_that_fails(with_token(second, first, file))
    file.chmod(0o600)
    with_token(second, first, file).start()
    wait_until(lambda: "n2" in cli(first, "node", "list").stdout, 60, "the second node")
    assert json.loads(cli(first, "token", "list", "--json").stdout) == [], "it is used up"
    said = start_that_fails(with_token(third, first, file))
    assert "used up, ended or revoked" in said, said
    # A node that has joined does not ask again.
    wait_until(lambda: (second.data / "node.json").exists() and "is up" in second.log(), 60, "its start")
    second.stop()
    second.start()
    ended = token(guarded, tmp_path, "short", "--for", "1s")
    wait_until(lambda: ask(first, "GET", "/v1/volumes", ended.read_text().strip())[0] == 401, 30, "its end")
    assert "used up, ended or revoked" in start_that_fails(with_token(third, first, ended))
    third.options = []
    assert not any(text[16:59] in node.log() for node in (first, second)), "logs have no secrets"
    audit = json.loads(cli(first, "audit", "--json").stdout)
    assert [(r["who"], r["operation"]) for r in audit if r["operation"] == "NodeJoin"] == [("t", "NodeJoin")]
    assert text[16:59] not in json.dumps(audit)


def test_where_only_trusted_machines_reach_the_configuration_no_token_is_needed(guarded):
    first, second, _ = guarded.nodes
    second.options = ["--trusted-config"]
    second.start()
    wait_until(lambda: len(json.loads(cli(first, "node", "list", "--json").stdout)) == 2, 60, "the second node")
    assert "start this node with --trusted-config" in start_that_fails(guarded.nodes[2])


def test_of_two_machines_with_one_token_one_becomes_a_node(guarded, tmp_path):
    first, second, third = guarded.nodes
    file = token(guarded, tmp_path)
    for node in (second, third):
        with_token(node, first, file).start()
    wait_until(lambda: second.alive != third.alive, 60, "one of the two to be refused")
    loser = third if second.alive else second
    # Who has come second was admitted with the token, or not any more.
    assert any(told in loser.log() for told in ("used up, ended or revoked", "there is no grant")), loser.log()
    wait_until(lambda: len(json.loads(cli(first, "node", "list", "--json").stdout)) == 2, 60, "the other one")
    with_token(loser, first, token(guarded, tmp_path, "second")).start()
    wait_until(lambda: len(json.loads(cli(first, "node", "list", "--json").stdout)) == 3, 60, "all three")
    guarded.wait_healthy()


def test_a_token_is_told_to_its_own_cluster_alone(guarded, make_cluster, tmp_path):
    other = make_cluster(nodes=1, api_access="grants")
    authority(other)
    foreign = token(other, tmp_path, "foreign")
    said = start_that_fails(with_token(guarded.nodes[1], guarded.first, foreign))
    assert "has not proved to be a node of the cluster that the token is from" in said, said
    assert "a wrong token" not in guarded.first.log(), "nobody was told it"
    # Its own cluster is not the one of the machine's configuration.
    said = start_that_fails(with_token(guarded.nodes[1], other.first, foreign))
    assert "machine's configuration has cluster" in said, said
    assert len(json.loads(cli(other.first, "token", "list", "--json").stdout)) == 1, "it is not used up"
