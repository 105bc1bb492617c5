"""What commands end with when they fail, and what they say then to whoever asked for JSON (`azekura --help`)."""

import json

from tools.harness.cluster import HOST, run_cli
from tools.harness.process import free_port

DONE, FAILED, USAGE, NOT_FOUND, REFUSED, NOT_ALLOWED, NOT_NOW = range(7)


def ends(node, *words, api=None):
    """The exit code, and the code of the error as JSON; the exit code is the same without it."""
    plain = run_cli(*words, api=api or node.api)
    done = run_cli(*words, "--json", api=api or node.api)
    assert plain.returncode == done.returncode, (plain.stderr, done.stderr)
    assert plain.stderr.startswith("error: ") or done.returncode == DONE, plain.stderr
    [*_, last] = done.stderr.splitlines() or ["{}"]
    return done.returncode, json.loads(last).get("code")


def test_scripts_can_tell_failures_apart(make_cluster):
    cluster = make_cluster(nodes=1)
    node = cluster.first
    cluster.create_volume("vol1", "64MiB", copies=1)
    assert ends(node, "volume", "show", "vol1") == (DONE, None)
    assert ends(node, "volume", "show", "vol2") == (NOT_FOUND, "not_found")
    assert ends(node, "volume", "create", "vol1", "64MiB") == (REFUSED, "exists")
    assert ends(node, "volume", "create", "Vol 1", "64MiB") == (REFUSED, "refused")
    assert ends(node, "volume", "show") == (USAGE, "usage")
    assert ends(node, "volume", "show", "vol1", "--nothing-such") == (USAGE, "usage")
    assert ends(node, "volume", "list", api=f"http://{HOST}:{free_port()}") == (NOT_NOW, "unreachable")
    cluster.cli("target", "create", "t", "--volume", "vol1")
    assert ends(node, "target", "remove", "t", "vol2") == (NOT_FOUND, "not_found")
    assert ends(node, "volume", "delete", "vol1") == (FAILED, "failed"), "nobody can be asked here"


def test_the_first_node_that_answers_is_asked(make_cluster):
    cluster = make_cluster(nodes=2, config="etcd")
    away, (first, second) = f"http://{HOST}:{free_port()}", cluster.nodes
    assert ends(first, "volume", "list", api=f"{away},{second.api}") == (DONE, None)
    # One that stands still accepts connections and says nothing.
    first.process.pause()
    try:
        assert ends(second, "node", "list", api=f"{first.api},{second.api}") == (DONE, None)
    finally:
        first.process.resume()
    nobody = run_cli("volume", "list", api=f"{away},http://{HOST}:{free_port()}")
    assert nobody.returncode == NOT_NOW and nobody.stderr.count("no answer from") == 2, nobody.stderr


def test_what_is_wrong_here_is_told_whoever_is_asked(make_cluster, folder, monkeypatch):
    cluster = make_cluster(nodes=2, config="etcd", api_access="grants")
    token = folder / "token"
    token.write_text("azt_nothing\n")
    token.chmod(0o644)
    monkeypatch.setenv("AZEKURA_TOKEN_FILE", str(token))
    urls = [f"https://{HOST}:{node.api_port}" for node in cluster.nodes]
    one, all_of_them = (run_cli("volume", "list", api=api) for api in (urls[0], ",".join(urls)))
    assert one.returncode == FAILED and "chmod 600" in one.stderr, one
    assert (all_of_them.returncode, all_of_them.stderr) == (one.returncode, one.stderr)


def test_who_may_not_hears_that(make_cluster):
    node = make_cluster(nodes=1, api_access="grants").first
    assert ends(node, "volume", "list", api=f"http://{HOST}:{node.api_port}") == (NOT_ALLOWED, "unauthorized")


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch, tmp_path):
    """As in a service's file of environment, or a script, that leaves out the value."""
    for empty in ("AZEKURA_API", "AZEKURA_CONFIG", "AZEKURA_CONFIG_CA", "AZEKURA_NODE_NAME"):
        monkeypatch.setenv(empty, "")
    asked = run_cli("volume", "list")
    assert "http://127.0.0.1:7180" in asked.stderr or asked.returncode == DONE, asked.stderr
    options = tmp_path / "config.toml"
    options.write_text('[node]\ndata = "/nowhere"\nname = "n7"\nconfig = "http://127.0.0.1:1"\n')
    assert run_cli("config", "check", options).returncode == DONE
    # Where the option itself is empty, somebody has meant something.
    assert "'' is not the URL of an API" in run_cli("volume", "list", "--api", "").stderr
