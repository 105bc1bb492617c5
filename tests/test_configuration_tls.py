"""etcd with TLS, certificates and users of its own: what goes on working, and what nodes say when it does not."""

import json

import pytest

from tools.harness.cluster import run_cli
from tools.harness.etcd import Authority, Etcd
from tools.harness.process import wait_until
from tools.harness.run import run


@pytest.fixture
def make_etcd(folder):
    """A function that starts an etcd with TLS; it ends with the test."""
    made = []

    def make(**options):
        made.append(Etcd(folder, Authority(folder, "servers"), **options))
        return made[-1].start()

    yield make
    for etcd in made:
        if etcd.alive:
            etcd.process.kill()


def shown(folder, name="node"):
    return ["--config-cert", folder / f"{name}.crt", "--config-key", folder / f"{name}.key"]


def refused(cluster, *words):
    """What a command says that can't be done."""
    done = run_cli(*words, api=cluster.first.api)
    assert done.returncode != 0, done.stdout
    return done.stderr


def can_make(cluster, name):
    return run_cli("volume", "create", name, "64MiB", "--copies", 1, api=cluster.first.api).returncode == 0


def waits_for(node, *words):
    """The node goes on trying, and its log says why."""

    def said():
        assert node.alive, node.process.log_tail()
        return all(word in node.log() for word in words)

    wait_until(said, 60, f"{words} in the log of {node.name}")


def test_certificates_on_both_ends(make_cluster, make_etcd, folder):
    ours, others = Authority(folder, "clients"), Authority(folder, "others")
    ours.issue("node", "azekura")
    ours.issue("stranger", "nobody")
    etcd = make_etcd(clients=ours)
    etcd.let_in("azekura")
    ca, good = ["--config-ca", etcd.authority.path], shown(folder)
    cluster = make_cluster(nodes=4, config=etcd.url, start=False)
    first, second, *rest = cluster.nodes
    first.options, second.options = [*ca, *good], ["--config-ca", others.path, *good]
    rest[0].options, rest[1].options = ca, [*ca, *shown(folder, "stranger")]
    for node in cluster.nodes:
        node.start()
    waits_for(second, "waiting for the configuration server", "no authority in", "others.pem", "--config-ca", etcd.url)
    waits_for(rest[0], "waiting for the configuration server", "wants a certificate", "--config-cert")
    waits_for(rest[1], "the common name of --config-cert may not do that", "/azekura/")
    for node in cluster.nodes[1:]:
        node.stop()
    del cluster.nodes[2:]
    second.options = [*ca, *good]
    (folder / "node.key").chmod(0o644)
    second.start()
    assert wait_until(lambda: not second.alive, 60, "the end of a node whose key others can read")
    assert "chmod 600" in second.log()
    (folder / "node.key").chmod(0o600)
    second.process = None  # Its device is waited for.
    cluster.start()
    cluster.create_volume(size="64MiB")
    run("qemu-io", "-f", "raw", "-c", "write -P 5 0 1M", first.uri())
    status = cluster.json("status")
    assert status["configuration"] == etcd.url and "without TLS" not in json.dumps(status["notes"])

    # etcd's own certificate is another one, of the same authority; then it takes nodes of another authority alone.
    etcd.stop()
    etcd.authority.issue("etcd", "etcd")
    etcd.start()
    cluster.wait_healthy()
    cluster.create_volume("vol2", "64MiB")
    etcd.stop()
    etcd.clients = others
    others.issue("operator", "")
    etcd.start()
    waits_for(first, "does not take the certificate in", "node.crt", "--config-cert")
    others.issue("node", "azekura")
    waits_for(first, "the configuration answers again")
    cluster.wait_healthy()
    cluster.create_volume("vol3", "64MiB")
    run("qemu-io", "-f", "raw", "-c", "read -P 5 0 1M", second.uri())


def test_users_with_passwords(make_cluster, make_etcd, folder):
    etcd = make_etcd(options=["--auth-token-ttl", "1"])
    etcd.let_in("azekura:horse battery")
    password = folder / "password"
    password.write_text("wrong\n")
    password.chmod(0o600)
    options = ["--config-ca", etcd.authority.path, "--config-user", "azekura", "--config-password-file", password]
    cluster = make_cluster(nodes=2, config=etcd.url, node_options=options, start=False)
    first = cluster.first
    first.start()
    waits_for(first, "user azekura (--config-user)", str(password), "authentication failed")
    password.write_text("horse battery\n")
    cluster.start()
    cluster.create_volume(size="64MiB")
    run("qemu-io", "-f", "raw", "-c", "write -P 5 0 1M", first.uri())

    # Tokens end while leases and watches go on.
    wait_until(lambda: etcd.process.log_text().count("deleted a simple token") > 2, 60, "the end of tokens")
    cluster.wait_healthy()
    assert can_make(cluster, "later")
    other = cluster.nodes[1]
    wait_until(lambda: "later" in cluster.cli("volume", "list", node=other), 30, "the news at the other node")

    # All tokens end at once.
    etcd.ctl("auth", "disable")
    etcd.ctl("auth", "enable")
    assert can_make(cluster, "after")

    # The role is taken away, and given back.
    etcd.ctl("user", "revoke-role", "azekura", "azekura")
    said = refused(cluster, "volume", "create", "vol2", "64MiB")
    assert "user azekura may not do that" in said and "/azekura/" in said and "configuration-security" in said, said
    etcd.ctl("user", "grant-role", "azekura", "azekura")
    wait_until(lambda: can_make(cluster, "again"), 30, "a volume with the role")

    # The password is another one.
    etcd.set_password("azekura", "new")
    said = refused(cluster, "volume", "create", "vol2", "64MiB")
    assert "authentication failed" in said and str(password) in said, said
    password.write_text("new\n")
    wait_until(lambda: can_make(cluster, "new"), 30, "a volume with the new password")
    for node in cluster.nodes:
        assert "horse" not in node.log(), "logs have no secrets"
    run("qemu-io", "-f", "raw", "-c", "read -P 5 0 1M", cluster.nodes[1].uri())
