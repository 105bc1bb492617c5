"""The support bundle: what is in it, what is not, and that none of the secrets of a real cluster is."""

import itertools
import json
import os
import stat
import subprocess
import tarfile

import pytest

from tests.test_grants import ask
from tests.test_https import answers, authority
from tools.harness.cluster import HOST, binary, run_cli
from tools.harness.process import wait_until

KEK = "5ad0c1f2" * 8
PASSPHRASE = "Seekrit horse battery"
CHAP, MUTUAL = "Tr0ub4dor-and-3", "Tr0ub4dor-back-3"
ETCD_PASSWORD, OPTION = "Staple_Horse9", "sesame-open-thou"
# Hosts without a secret are known by their names alone.
IQN, NQN = "iqn.1998-01.com.vmware:esx-7c0ffee7", "nqn.2014-08.org.nvmexpress:uuid:5b1e7c0a-9d1f-4a53-8a39-3a2b9a0c7e11"
PRIVATE_KEY = "MC4CAQAwBQYDK2VwBCIEIIm7Lr0sN8yqz7wQ3Jv8s9Kf2hTzV1xYb4cD6eF8gH0j"


def private(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return path


def bundle(node, folder, *options, name="b.tar.gz", api=None, config="no.toml"):
    """Makes one; the finished command."""
    words = ["support-bundle", "--output", folder / name, "--config-file", folder / config, *options]
    return run_cli(*words, api=api or node.api)


def unpacked(path):
    """The files of a bundle by their paths below its folder."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert all(member.isfile() and member.mode == 0o600 for member in members)
        (folder,) = {member.name.split("/")[0] for member in members}
        assert folder.startswith("azekura-support-2")
        read = {member.name: archive.extractfile(member).read().decode() for member in members}
        return {name.removeprefix(f"{folder}/"): text for name, text in read.items()}


def clean(files, secrets):
    found = [f"{file} has {secret}" for file, text in files.items() for secret in secrets if secret in text]
    assert not found, found


class Planted:
    """A guarded cluster of two nodes with a secret of each kind, and a log in which somebody has written them all."""

    def __init__(self, make_cluster, folder):
        self.folder = folder
        self.kek = private(folder / "kek", f"# the key of keys\n1 {KEK}\n")
        self.cluster = make_cluster(nodes=2, api_access="grants", node_options=["--key-file", str(self.kek)])
        cli = self.cluster.cli
        roles = ("operator", "owner")
        self.tokens = {role: cli("token", "create", f"the-{role}", "--role", role).strip() for role in roles}
        for node, token in itertools.product(self.cluster.nodes, self.tokens.values()):
            wait_until(lambda node=node, token=token: ask(node, "GET", "/v1/whoami", token)[0] == 200, 30, "the tokens")
        # Each node proves what it is by the authority's certificate, which it has a moment after its first start.
        certificate = authority(self.cluster)["certificate"]
        for node in self.cluster.nodes:
            wait_until(lambda node=node: answers(node, certificate, self.tokens["operator"]), 30, "its certificate")
        self.join = cli("token", "create", "n9", "--join").strip()
        cli("volume", "create", "safe", "64MiB", "--encrypt")
        cli("volume", "create", "closed", "64MiB", "--secret-file", private(folder / "pass", f"{PASSPHRASE}\n"))
        cli("snapshot", "create", "safe@monday")
        cli("target", "create", "t1")
        chap = ["--chap-secret-file", private(folder / "chap", CHAP)]
        mutual = ["--mutual-secret-file", private(folder / "mutual", MUTUAL)]
        words = ["host", "add", "esx1", "--iqn", "iqn.1998-01.com.vmware:esx1", *chap, *mutual]
        # Secrets of hosts are sealed with the authority's key, which a node has a moment after its first start.
        wait_until(lambda: run_cli(*words, api=self.cluster.first.api).returncode == 0, 30, "the authority's key")
        made = json.loads(cli("host", "add", "db7", "--nqn", "nqn.2000-01.example:db7", "--chap", "--json"))
        (self.nvme,) = [text for text in json.dumps(made).split('"') if text.startswith("DHHC-1:")]
        cli("host", "add", "esx2", "--iqn", IQN)
        cli("host", "add", "db8", "--nqn", NQN)
        self.cluster.wait_healthy()
        self.secrets = [
            *(token[16:] for token in [*self.tokens.values(), self.join]),
            *(KEK, PASSPHRASE, CHAP, MUTUAL, self.nvme[10:], ETCD_PASSWORD, OPTION, IQN[5:], NQN[5:], PRIVATE_KEY),
        ]
        self.write_log()
        self.write_options()

    def write_log(self):
        """The first node's log, with lines that no node writes."""
        said = [f"shown {token}" for token in [*self.tokens.values(), self.join]]
        said += [f"KEK 1 {KEK}", f"passphrase: '{PASSPHRASE}'", self.nvme]
        said += [f"chap_secret={CHAP} mutual-secret: {MUTUAL}"]
        said += [f"etcd at https://root:{ETCD_PASSWORD}@10.0.0.1:2379", f"was told {ETCD_PASSWORD} and {OPTION}"]
        said += [f"{IQN} and {NQN} were let in"]
        said += [f"-----BEGIN PRIVATE KEY-----\n{PRIVATE_KEY}\n-----END PRIVATE KEY-----"]
        now = "2099-01-01T00:00:00.000000Z"
        lines = [f"{now}  INFO azekura: {text}" for text in said]
        lines += [json.dumps({"timestamp": now, "level": "INFO", "message": text}) for text in said]
        lines += [f"{now}  WARN azekura: device 3 is slow"]
        self.log = self.folder / "n1.log"
        self.log.write_text(self.cluster.first.log() + "\n".join(lines) + "\n")

    def write_options(self):
        """A file of options with all that there are, a password in a URL, and an option that nobody knows."""
        example = run_cli("config", "example").stdout
        lines = [line.removeprefix("# ") for line in example.splitlines() if " = " in line]
        self.options = [line.split(" = ")[0] for line in lines if line.split(" = ")[0].replace("-", "").isalpha()]
        own = {
            "config": f'"https://root:{ETCD_PASSWORD}@10.0.0.1:2379"',
            "data": f'"{self.cluster.first.data}"',
            "key-file": f'"{self.kek}"',
            "config-password-file": f'"{private(self.folder / "etcd", ETCD_PASSWORD)}"',
            "etcd-password": f'"{OPTION}"',
        }
        known = {option: own.pop(option, f'"value-of-{number}-"') for number, option in enumerate(self.options)}
        text = "\n".join(f"{name} = {value}" for name, value in {**known, **own}.items())
        (self.folder / "config.toml").write_text(f"# it was {OPTION} before\n[node]\n{text}\n")


@pytest.fixture(scope="module")
def planted(module_cluster, tmp_path_factory):
    return Planted(module_cluster, tmp_path_factory.mktemp("planted"))


def test_none_of_the_secrets_of_a_cluster_is_in_it(planted, monkeypatch):
    folder, first = planted.folder, planted.cluster.first
    made = bundle(first, folder, "--log", planted.log, name="all.tar.gz", config="config.toml")
    assert made.returncode == 0, made.stderr
    files = unpacked(folder / "all.tar.gz")
    clean(files, planted.secrets)
    clean({"stdout": made.stdout, "stderr": made.stderr}, planted.secrets)

    # By another login, whose token is in a file that is named.
    token = private(folder / "token", planted.tokens["operator"])
    monkeypatch.setenv("AZEKURA_TOKEN_FILE", str(token))
    api = f"http://{HOST}:{first.api_port}"
    made = bundle(first, folder, "--log", planted.log, name="operator.tar.gz", config="config.toml", api=api)
    assert made.returncode == 0, made.stderr
    of_operator = unpacked(folder / "operator.tar.gz")
    clean(of_operator, planted.secrets)
    # Both nodes take its token, and it may not see who may what.
    assert {"nodes/n1.metrics.txt", "nodes/n2.metrics.txt"} <= set(of_operator), made.stderr
    assert "cluster/audit.json" not in of_operator and "missing: cluster/grants.json" in made.stderr, made.stderr


def test_what_is_needed_is_in_it(planted):
    folder, first = planted.folder, planted.cluster.first
    made = bundle(first, folder, "--log", planted.log, "--json", name="json.tar.gz", config="config.toml")
    assert made.returncode == 0, made.stderr
    said = json.loads(made.stdout)
    assert said["file"] == str(folder / "json.tar.gz") and said["bytes"] == (folder / "json.tar.gz").stat().st_size
    files = unpacked(folder / "json.tar.gz")
    manifest = json.loads(files["manifest.json"])
    assert manifest["files"] == said["files"] and manifest["missing"] == said["missing"]
    assert {"README.txt", "manifest.json", *(part["file"] for part in said["files"])} == set(files)

    def names(part):
        return [thing["name"] for thing in json.loads(files[f"cluster/{part}.json"])]

    # Nodes are listed as they registered, which may be in any order.
    assert names("volumes") == ["closed", "safe"] and names("targets") == ["t1"] and set(names("nodes")) == {"n1", "n2"}
    assert names("snapshots") == ["monday"] and "default" in names("classes") and len(names("devices")) == 2
    assert {"esx1", "esx2", "db7", "db8", "the-operator", "the-owner", "n9"} == set(names("grants"))
    assert json.loads(files["cluster/status.json"])["api_access"] == "grants"
    assert any(record["operation"] == "HostCreate" for record in json.loads(files["cluster/audit.json"]))
    assert {node["name"] for node in json.loads(files["cluster/stats.json"])["nodes"]} == {"n1", "n2"}
    for part in ("groups", "space", "jobs", "settings", "keks", "projects", "whoami", "authority"):
        assert json.loads(files[f"cluster/{part}.json"]) is not None
    assert 'node="n1"' in files["nodes/n1.metrics.txt"]
    assert "room " in files["machine/facts.txt"] and "MemTotal" in files["machine/facts.txt"]
    log = files["machine/1.log"]
    assert "device 3 is slow" in log and "is up" in log, log[-2000:]
    for part in said["files"]:
        assert part["file"] in files["README.txt"] and part["bytes"] == len(files[part["file"]].encode())

    # Somebody has decided about each option that a node has.
    told = dict(line.split(" = ", 1) for line in files["machine/config.toml"].splitlines() if " = " in line)
    withheld = {name for name, value in told.items() if value == '"[withheld]"'}
    assert set(told) == {*planted.options, "etcd-password"} and withheld == {"etcd-password", "kmip-private-key"}


def test_what_can_not_be_had_is_named(planted, monkeypatch):
    folder, first = planted.folder, planted.cluster.first
    # Its own socket opens the first node; the second one asks for a token.
    made = bundle(first, folder, "--log", folder / "none.log", name="lacks.tar.gz")
    assert made.returncode == 0, made.stderr
    files = unpacked(folder / "lacks.tar.gz")
    for part, why in [
        ("nodes/n2.metrics.txt", "log in there, or set AZEKURA_TOKEN_FILE"),
        ("machine/1.log", "none.log: No such file"),
        ("machine/config.toml", "no.toml: No such file"),
    ]:
        for text in (made.stderr, files["README.txt"]):
            assert any(part in line and why in line for line in text.splitlines()), f"{part}\n{text}"
    assert "3 parts are missing" in made.stdout, made.stdout

    # The journal's program says nothing, fails, or says something.
    programs = folder / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    journalctl = programs / "journalctl"
    for name, script, wanted in [("empty", "exit 1", "may read"), ("full", 'echo "n1 azekura: $*"', None)]:
        journalctl.write_text(f"#!/bin/sh\n{script}\n")
        journalctl.chmod(0o755)
        made = bundle(first, folder, "--hours", "7", name=f"{name}.tar.gz")
        assert made.returncode == 0 and (wanted is None or wanted in made.stderr), made.stderr
    log = unpacked(folder / "full.tar.gz")["machine/journal.log"]
    assert "--unit azekura" in log and "--since=-7h" in log, log


def test_who_is_of_a_project_gets_what_is_of_it(planted, monkeypatch):
    folder, first = planted.folder, planted.cluster.first
    monkeypatch.setenv("AZEKURA_TOKEN_FILE", str(private(folder / "owner", planted.tokens["owner"])))
    made = bundle(first, folder, "--no-log", name="owner.tar.gz", api=f"http://{HOST}:{first.api_port}")
    assert made.returncode == 0, made.stderr
    files = unpacked(folder / "owner.tar.gz")
    clean(files, planted.secrets)
    assert "cluster/volumes.json" in files and "cluster/nodes.json" not in files
    assert "cluster/nodes.json" in files["README.txt"] and "see nodes" in files["README.txt"], files["README.txt"]


def test_nothing_is_overwritten_and_no_half_file_is_left(planted):
    folder, first = planted.folder, planted.cluster.first
    there = folder / "there.tar.gz"
    there.write_text("precious")
    refused = bundle(first, folder, name=there.name)
    assert refused.returncode == 1 and f"{there} is there already" in refused.stderr and "--output" in refused.stderr
    assert there.read_text() == "precious"
    for name, why in [("none/b.tar.gz", "No such file"), ("there.tar.gz/b.tar.gz", "is no folder")]:
        refused = bundle(first, folder, name=name)
        assert refused.returncode == 1 and why in refused.stderr and "--output" in refused.stderr, refused.stderr
    refused = bundle(first, folder, "--json", name=there.name)
    assert json.loads(refused.stderr.splitlines()[-1])["code"] == "failed"
    # Nobody answers, and this is no machine of a node: there is nothing to pack.
    nothing = bundle(first, folder, name="nothing.tar.gz", api="http://127.0.0.1:1")
    assert nothing.returncode == 6 and "no file was written" in nothing.stderr, nothing.stderr
    assert not (folder / "nothing.tar.gz").exists()


def test_it_goes_through_a_pipe(planted):
    """As out of a container that has no folder to write to."""
    words = [str(binary()), "support-bundle", "--no-log", "--output", "-", "--api", planted.cluster.first.api]
    with open(planted.folder / "piped.tar.gz", "wb") as file:
        made = subprocess.run(words, stdout=file, stderr=subprocess.PIPE, text=True, timeout=90, cwd=planted.folder)
    assert made.returncode == 0 and "standard output: " in made.stderr, made.stderr
    (planted.folder / "piped.tar.gz").chmod(0o600)
    assert "cluster/volumes.json" in unpacked(planted.folder / "piped.tar.gz")
    assert not (planted.folder / "-").exists()
    refused = run_cli("support-bundle", "--output", "-", "--json", api=planted.cluster.first.api)
    assert refused.returncode == 2 and refused.stdout == "", refused.stdout


@pytest.mark.root
def test_a_full_disk_leaves_no_half_file(planted):
    folder = planted.folder / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", folder], check=True, timeout=60)
    try:
        failed = bundle(planted.cluster.first, folder, "--log", planted.log)
        assert failed.returncode == 1, failed.stdout
        assert "No space left" in failed.stderr and "nothing is left there" in failed.stderr, failed.stderr
        assert list(folder.iterdir()) == []
    finally:
        subprocess.run(["umount", folder], check=True, timeout=60)


def test_nodes_that_are_down_are_named(planted):
    """The last test of this file: afterwards the nodes are gone."""
    folder, (first, second) = planted.folder, planted.cluster.nodes
    second.kill()

    def is_alive():
        return next(node["alive"] for node in planted.cluster.json("node", "list") if node["name"] == second.name)

    wait_until(lambda: not is_alive(), 60, "its end")
    made = bundle(first, folder, "--no-log", name="away.tar.gz")
    assert made.returncode == 0 and "missing: nodes/n2.metrics.txt: n2 is away" in made.stderr, made.stderr
    files = unpacked(folder / "away.tar.gz")
    assert "nodes/n2.metrics.txt: n2 is away" in files["README.txt"] and "nodes/n1.metrics.txt" in files
    assert any("n2" in problem for problem in json.loads(files["cluster/status.json"])["problems"])
    # With no node at all, the machine says what it knows.
    first.kill()
    made = bundle(first, folder, "--log", planted.log, name="none.tar.gz", config="config.toml")
    assert made.returncode == 0, made.stderr
    assert "missing: cluster: no answer from unix:" in made.stderr, made.stderr
    files = unpacked(folder / "none.tar.gz")
    clean(files, planted.secrets)
    assert {"machine/1.log", "machine/facts.txt", "machine/config.toml"} <= set(files)
