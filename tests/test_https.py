"""The REST API over HTTPS: the cluster's certificate authority, logins by its fingerprint, its replacement."""

import json
import os
import ssl
import stat
import subprocess
import urllib.error
import urllib.request

import pytest

from tools.harness.cluster import HOST, binary, run_cli
from tools.harness.process import wait_until


@pytest.fixture
def guarded(make_cluster):
    """Two nodes that ask for grants; the harness goes through their own sockets."""
    return make_cluster(nodes=2, api_access="grants")


def url(node):
    return f"https://{HOST}:{node.api_port}"


def authority(cluster):
    """What `azekura ca show` tells, when there is one."""
    wait_until(lambda: "certificate" in cli(cluster.first, "ca", "show", "--json").stdout, 30, "an authority")
    return json.loads(cli(cluster.first, "ca", "show", "--json").stdout)


def cli(node, *words):
    return run_cli(*words, api=f"unix:{node.data / 'api.sock'}")


def volumes(node, certificate, token):
    """Lists volumes as a program would that knows nothing of Azekura; the certificate has to name the address."""
    context = ssl.create_default_context(cadata=certificate)
    request = urllib.request.Request(f"{url(node)}/v1/volumes", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, context=context, timeout=30) as answer:
        return json.load(answer)


def answers(node, certificate, token):
    """It has a certificate of this authority, which takes a moment after its first start."""
    try:
        return isinstance(volumes(node, certificate, token), list)
    except (urllib.error.URLError, ssl.SSLError):
        return False


def log_in(node, token, *options):
    words = [str(binary()), "login", "--api", url(node), *options]
    return subprocess.run(words, input=token, capture_output=True, text=True, timeout=60)


def test_programs_know_the_nodes_by_one_authority(guarded):
    shown = authority(guarded)
    assert shown["number"] == 1 and len(shown["fingerprint"]) == 64 and "PRIVATE" not in json.dumps(shown)
    token = guarded.cli("token", "create", "ann", "--role", "user").strip()
    for _ in range(2):
        for node in guarded.nodes:
            check = lambda node=node: answers(node, shown["certificate"], token)  # noqa: E731
            wait_until(check, 30, f"a certificate of {node.name} by the authority")
        guarded.kill_all()
        guarded.start()
        guarded.wait_healthy()
    stranger = ssl.create_default_context()
    with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
        urllib.request.urlopen(f"{url(guarded.first)}/v1/health", context=stranger, timeout=30)
    for node in guarded.nodes:
        key = node.data / "identity" / "authority-1.pem"
        assert stat.S_IMODE(os.stat(key).st_mode) == 0o600 and "PRIVATE KEY" in key.read_text()
        secret = key.read_text().split("-----BEGIN PRIVATE KEY-----")[1].split()[0]
        assert secret not in node.log(), "logs have no secrets"
        kept = (guarded.first.data / "config.redb").read_bytes()
        assert secret.encode() not in kept, "and neither has the configuration"
    # Who asks with a token that is admin's does not get the key either.
    admin = guarded.cli("token", "create", "root", "--role", "admin").strip()
    request = urllib.request.Request(f"{url(guarded.first)}/v1/node/authority?number=1")
    request.add_header("Authorization", f"Bearer {admin}")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        context = ssl.create_default_context(cadata=shown["certificate"])
        urllib.request.urlopen(request, context=context, timeout=30)


def test_the_command_line_logs_in_by_the_authority(guarded, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for variable in ("AZEKURA_TOKEN_FILE", "AZEKURA_CA_FILE"):
        monkeypatch.delenv(variable, raising=False)
    node, shown = guarded.nodes[1], authority(guarded)
    token = guarded.cli("token", "create", "ann", "--role", "operator").strip()
    wait_until(lambda: answers(node, shown["certificate"], token), 30, "the certificate")
    unknown = log_in(node, token)
    assert unknown.returncode == 5 and "--ca-fingerprint" in unknown.stderr, unknown.stderr
    other = "0" * 64
    stranger = log_in(node, token, "--ca-fingerprint", other)
    assert stranger.returncode == 5 and "has not proved to be a node" in stranger.stderr, stranger.stderr
    assert run_cli("volume", "list", api=url(node)).returncode == 5
    done = log_in(node, token, "--ca-fingerprint", shown["fingerprint"])
    assert done.returncode == 0 and "role operator" in done.stdout, done.stderr
    listed = run_cli("volume", "list", api=url(node))
    assert listed.returncode == 0, listed.stderr

    # The authority is replaced while clients go on.
    made = json.loads(cli(node, "ca", "replace", "--json").stdout)
    assert made["number"] == 2 and made["fingerprint"] != shown["fingerprint"]
    for asked in guarded.nodes:
        check = lambda asked=asked: answers(asked, made["certificate"], token)  # noqa: E731
        wait_until(check, 30, f"a certificate of {asked.name} by the next authority")
    assert answers(node, shown["certificate"], token), "who knows the first goes on trusting"
    listed = run_cli("volume", "list", api=url(node))
    assert listed.returncode == 0, listed.stderr
    anew = log_in(node, token, "--ca-fingerprint", made["fingerprint"])
    assert anew.returncode == 0, anew.stderr

    # Programs name files instead.
    (tmp_path / "azekura" / "login.json").unlink()
    assert run_cli("volume", "list", api=url(node)).returncode == 5
    for variable, text in (("AZEKURA_TOKEN_FILE", token), ("AZEKURA_CA_FILE", made["certificate"])):
        path = tmp_path / variable
        path.write_text(text)
        path.chmod(0o600)
        monkeypatch.setenv(variable, str(path))
    listed = run_cli("volume", "list", api=url(node))
    assert listed.returncode == 0, listed.stderr
