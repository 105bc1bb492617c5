"""The configuration server that a node has, with TLS: machines join by tokens, and only the cluster's nodes get in."""

import json
import socket
import ssl

import pytest

from tests.test_https import authority, cli, url
from tests.test_identity import key_file, name_of
from tests.test_join import token, with_token
from tests.test_shut_out import certificate_of
from tests.test_start import start_that_fails
from tools.harness.cluster import HOST, run_cli
from tools.harness.process import wait_until
from tools.harness.run import run

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"
# The type of a frame of HTTP/2 that a server begins with (RFC 9113, 6.5).
SETTINGS = 4


@pytest.fixture
def guarded(make_cluster):
    """The first of three nodes, which serves the configuration with TLS; the API asks for grants."""
    made = make_cluster(transport="tls", api_access="grants", device_size="512MiB", start=False, config_tls=True)
    made.first.start()
    wait_until(lambda: cli(made.first, "status").returncode in (0, 1), 60, "the first node")
    authority(made)
    return made


def first_word(port, identity=None, preface=PREFACE):
    """What the server of the configuration says to whoever shows a certificate with its key, or none."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if identity:
        context.load_cert_chain(*identity)
    try:
        with socket.create_connection((HOST, port), timeout=30) as plain, context.wrap_socket(plain) as stream:
            stream.sendall(preface)
            return stream.recv(4096)
    except (ssl.SSLError, ConnectionError):
        return b""


def is_let_in(port, identity):
    word = first_word(port, identity)
    assert not word or word[3] == SETTINGS, word
    return bool(word)


def test_only_nodes_of_the_cluster_reach_its_configuration(guarded, tmp_path):
    first, second, third = guarded.nodes
    port = guarded.config_port
    # A machine without a token, and one that misses TLS, are told what to do and get nothing.
    said = start_that_fails(second)
    assert "--join and --token-file" in said and "--config-fingerprint" in said, said
    for node in (second, third):
        with_token(node, first, token(guarded, tmp_path, node.name))
    guarded.start()
    guarded.create_volume(size="64MiB")
    run("qemu-io", "-f", "raw", "-c", "write -P 5 0 1M", second.uri())
    status = json.loads(cli(second, "status", "--json").stdout)
    assert status["configuration"] == f"https://{HOST}:{port}", status

    # Strangers: a certificate of their own, the key of another cluster's node, none, and no TLS at all.
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", tmp_path / "own.key")
    subject = ["-subj", "/CN=n2", "-days", "2", "-out", tmp_path / "own.pem"]
    run("openssl", "req", "-x509", "-key", tmp_path / "own.key", *subject)
    node = certificate_of(second, tmp_path)
    assert is_let_in(port, node)
    assert not is_let_in(port, (tmp_path / "own.pem", tmp_path / "own.key"))
    assert not is_let_in(port, None)
    with socket.create_connection((HOST, port), timeout=30) as plain:
        plain.sendall(PREFACE)
        heard = plain.recv(4096)
    # At most the alert that it is no TLS.
    assert len(heard) <= 7 and heard[:1] in (b"", b"\x15"), heard

    # The node that serves starts again: the others know it, and it knows them, without a token.
    for word in ("n2", "n3"):
        (tmp_path / f"{word}.token").unlink()
    first.stop()
    first.start()
    second.stop()
    second.start()
    guarded.wait_healthy()
    run("qemu-io", "-f", "raw", "-c", "read -P 5 0 1M", second.uri())

    # Out at once, on the connection that stands and on others.
    assert cli(first, "node", "shut-out", "n2").returncode == 0
    assert not is_let_in(port, node)
    wait_until(lambda: not second.alive or "does not know this machine's key" in second.log(), 60, "n2 to be told")
    if second.alive:
        second.kill()
    # Its machine is installed anew, and names the key that it has made.
    key_file(second).unlink()
    second.start()
    wait_until(lambda: "let-in" in second.log() and key_file(second).exists(), 60, "the new key")
    key = name_of(key_file(second).read_bytes())
    wait_until(lambda: key in second.log(), 60, "the new key in the log")
    assert cli(first, "node", "let-in", "n2", "--key", key).returncode == 0
    wait_until(lambda: json.loads(cli(first, "status", "--json").stdout)["healthy"], 90, "n2 without a restart")
    assert not is_let_in(port, node), "the stolen key stays nothing"


def test_after_the_serving_node_has_another_key_the_others_are_told_it(guarded, tmp_path):
    first, second, _ = guarded.nodes
    del guarded.nodes[2]
    with_token(second, first, token(guarded, tmp_path))
    guarded.start()
    guarded.create_volume(size="64MiB")
    second.stop()
    first.stop()
    key_file(first).unlink()
    first.options = ["--replace-key"]
    first.start()
    wait_until(lambda: cli(first, "status").returncode in (0, 1), 60, "the first node")
    second.start()
    wait_until(lambda: "--config-fingerprint" in second.log(), 60, "n2 to say what to do")
    key = name_of(key_file(first).read_bytes())
    assert f"shows the key {key}, which no node has" in second.log()
    second.stop()
    second.options = [*second.options, "--config-fingerprint", key]
    second.start()
    guarded.wait_healthy()
    # This command asks the server itself, as that node.
    asked = ["cluster", "restored", "--config", guarded.config_url, "--without", 99]
    refused = run_cli(*asked)
    assert refused.returncode != 0 and "--as-node" in refused.stderr, refused.stderr
    refused = run_cli(*asked, "--as-node", second.data)
    assert refused.returncode != 0 and "there is no device 99" in refused.stderr, refused.stderr


def test_a_wrong_option_never_leads_away_from_tls(guarded):
    first, second, _ = guarded.nodes
    name = url(first).removeprefix("https://")
    second.options = ["--config", f"{guarded.config_url},http://{name}", "--config-fingerprint", "ab" * 32]
    said = start_that_fails(second)
    assert "would be asked without TLS" in said, said
