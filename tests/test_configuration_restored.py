"""The configuration goes back: it is restored from an older backup. Nobody believes it, and there is a way on.

The commands are those of docs/operations/configuration-backup.md.
"""

import json
import os
import shutil
import subprocess

import pytest

from tools.harness.cluster import HOST, ROOT, binary, run_cli
from tools.harness.document import commands
from tools.harness.nbd import Client
from tools.harness.process import wait_until

PAGE = ROOT / "docs" / "operations" / "configuration-backup.md"
MIB = 1 << 20
# One stretch in each of many groups.
PLACES = [place * 8 * MIB for place in range(24)]

pytestmark = pytest.mark.slow


class Operator:
    """Somebody who follows the page."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.backup_file = cluster.folder / "backup"

    def do(self, name, **more):
        peer = f"http://{HOST}:{self.cluster.etcd_peer_port}"
        words = {
            "ETCD": self.cluster.config_url,
            "BACKUP": self.backup_file,
            "ETCD_DATA": self.cluster.folder / "etcd",
            "NAME": "only",
            "PEER": peer,
            "CLUSTER": f"only={peer}",
            "AZEKURA_API": self.cluster.first.api,
            "PATH": f"{binary().parent}:{os.environ['PATH']}",
            "ETCDCTL_API": "3",
        } | more
        environment = os.environ | {name: str(value) for name, value in words.items()}
        command = ["sh", "-euc", commands(PAGE, name)]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
        assert result.returncode == 0, f"{name}: {result.stdout}{result.stderr}"
        return result.stdout

    def backup(self):
        self.do("backup")

    def restore_etcd(self):
        self.cluster.etcd.kill()
        shutil.rmtree(self.cluster.folder / "etcd")
        self.do("restore")
        self.cluster.start_etcd()

    def go_on(self, node):
        told = self.do("restored", DATA=node.data)
        for node in self.cluster.nodes:
            if not node.alive:
                node.start()
        self.do("wait")
        self.cluster.wait_healthy()
        return told


def fill(cluster, volume, letter):
    with Client(cluster.first.uri(volume)) as client:
        for place in PLACES:
            client.write(place, letter * 8192)


def read(cluster, volume, node=None):
    """What is at all places, if it is everywhere the same."""
    with Client((node or cluster.first).uri(volume)) as client:
        return {client.read(place, 8192) for place in PLACES}


def ended(node):
    wait_until(lambda: not node.alive, 60, f"the end of {node.name}")
    return node.log()


def change_after_backup(cluster):
    """A write, a volume, a snapshot with a write on top, and a copy that is left behind and was in sync before."""
    cluster.create_volume("after", "256MiB")
    fill(cluster, "after", b"2")
    cluster.cli("snapshot", "create", "before@s")
    cluster.cli("cluster", "set", "rehome-after", "never")
    cluster.nodes[2].stop()
    fill(cluster, "before", b"3")


def test_a_restored_configuration_is_refused_and_there_is_a_way_on(make_cluster):
    cluster = make_cluster(config="etcd")
    operator = Operator(cluster)
    cluster.create_volume("before", "256MiB")
    fill(cluster, "before", b"1")
    operator.backup()
    change_after_backup(cluster)

    # Nodes that run notice, and end.
    operator.restore_etcd()
    for node in cluster.nodes[:2]:
        log = ended(node)
        assert "went back" in log and "azekura cluster restored" in log, log
    # One that has seen nothing of it, and is in sync as far as the backup knows, does not serve the old contents.
    absent = cluster.nodes[2]
    absent.start()
    log = ended(absent)
    assert "went back" in log, log
    # Nor do those that have noticed start again.
    cluster.first.start()
    assert "went back" in ended(cluster.first)

    told = operator.go_on(cluster.first)
    assert "completed from a copy" in told, told
    for node in cluster.nodes:
        assert read(cluster, "before", node) == {b"3" * 8192}, node.name
        assert read(cluster, "after", node) == {b"2" * 8192}, node.name
    assert read(cluster, "before@s") == {b"1" * 8192}

    # No number is given twice: what is new is empty, and what is written to a new head is read.
    cluster.create_volume("new", "256MiB")
    assert read(cluster, "new") == {bytes(8192)}
    fill(cluster, "before", b"4")
    cluster.cli("snapshot", "create", "before@t")
    assert read(cluster, "before") == {b"4" * 8192}
    assert cluster.json("scrub", "before", "--wait")["findings"] == 0
    for node in reversed(cluster.nodes):
        node.stop()
        node.start()
    cluster.wait_healthy()
    assert read(cluster, "before") == {b"4" * 8192}


def test_a_lost_configuration_is_made_anew_from_a_nodes_copy(make_cluster):
    """etcd is empty: what nodes remember is enough."""
    cluster = make_cluster(config="etcd")
    operator = Operator(cluster)
    cluster.create_volume("before", "256MiB")
    fill(cluster, "before", b"1")
    for node in cluster.nodes:
        node.stop()
    cluster.etcd.kill()
    shutil.rmtree(cluster.folder / "etcd")
    cluster.start_etcd()
    cluster.first.start()
    log = ended(cluster.first)
    assert "holds no cluster" in log and "azekura cluster restored" in log, log
    operator.go_on(cluster.nodes[1])
    assert read(cluster, "before") == {b"1" * 8192}


def test_an_older_database_of_the_node_that_serves_the_configuration(make_cluster):
    cluster = make_cluster()
    cluster.create_volume("before", "256MiB")
    fill(cluster, "before", b"1")
    cluster.stop()
    database = cluster.first.data / "config.redb"
    older = database.read_bytes()
    cluster.start()
    fill(cluster, "before", b"2")
    cluster.create_volume("after", "256MiB")
    fill(cluster, "after", b"3")
    cluster.stop()
    database.write_bytes(older)
    cluster.first.start()
    assert "went back" in ended(cluster.first)
    result = run_cli("cluster", "restored", "--data", cluster.first.data, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["copy_revision"] > json.loads(result.stdout)["revision"]
    cluster.start()
    assert read(cluster, "before") == {b"2" * 8192}
    assert read(cluster, "after") == {b"3" * 8192}


def test_a_lost_database_is_made_anew_from_a_copy_that_was_taken_while_nodes_ran(make_cluster, folder):
    """The node that serves the configuration has lost its database, and every node's own copy is gone, too."""
    cluster = make_cluster()
    cluster.create_volume("before", "256MiB")
    fill(cluster, "before", b"1")
    operator, backup = Operator(cluster), folder / "backup"
    backup.mkdir()

    def is_in_backup():
        operator.do("backup-embedded", DATA=cluster.nodes[1].data, BACKUP=backup)
        return "/volumes/before" in (backup / "configuration.json").read_text()

    wait_until(is_in_backup, 30, "the volume is in a node's copy")
    fill(cluster, "before", b"2")
    cluster.stop()
    for node in cluster.nodes:
        (node.data / "configuration.json").unlink()
    (cluster.first.data / "config.redb").unlink()
    cluster.first.start()
    log = ended(cluster.first)
    assert "holds no cluster" in log and "azekura cluster restored" in log, log
    result = run_cli("cluster", "restored", "--data", cluster.first.data)
    assert result.returncode == 1 and "has no configuration.json" in result.stderr, result.stderr
    told = operator.do("restored-embedded", DATA=cluster.first.data, BACKUP=backup)
    assert "was completed from a copy" in told, told
    cluster.start()
    assert read(cluster, "before") == {b"2" * 8192}


def test_the_backup_alone(make_cluster):
    """What was made after it is not known any more, and nothing shows up elsewhere or is thrown away."""
    cluster = make_cluster(config="etcd")
    operator = Operator(cluster)
    cluster.create_volume("before", "256MiB")
    fill(cluster, "before", b"1")
    operator.backup()
    change_after_backup(cluster)
    for node in cluster.nodes[:2]:
        node.stop()
    operator.restore_etcd()
    result = run_cli("cluster", "restored", "--config", cluster.config_url, "--backup-only")
    assert result.returncode == 0, result.stderr
    cluster.start()
    # The volume is what its layer was when the snapshot froze it.
    assert read(cluster, "before") == {b"1" * 8192}
    for name in ("new", "after"):
        cluster.create_volume(name, "256MiB")
        assert read(cluster, name) == {bytes(8192)}, name
    fill(cluster, "before", b"4")
    cluster.cli("snapshot", "create", "before@t")
    assert read(cluster, "before") == {b"4" * 8192}
    notes = cluster.json("status")["notes"]
    assert any("2 layers on devices are no volume's" in note for note in notes), notes
    assert cluster.json("scrub", "before", "--wait")["findings"] == 0
    cluster.stop()
    assert cluster.unsound() == 0


def test_without_a_device_that_does_not_come_back(make_cluster):
    cluster = make_cluster(config="etcd")
    operator = Operator(cluster)
    cluster.create_volume("before", "256MiB")
    operator.backup()
    fill(cluster, "before", b"1")
    for node in cluster.nodes:
        node.stop()
    operator.restore_etcd()
    result = run_cli("cluster", "restored", "--config", cluster.config_url)
    assert result.returncode != 0 and "--data" in result.stderr, result.stderr
    operator.do("restored", DATA=cluster.first.data)
    for node in cluster.nodes[:2]:
        node.start()
    lost = next(d["id"] for d in wait_devices(cluster) if d["node_name"] == cluster.nodes[2].name)

    def waits():
        problems = cluster.json_of_unhealthy("status")["problems"]
        return any(f"hold: {lost} (node n3)" in problem for problem in problems)

    wait_until(waits, 60, "the status to name the device")
    result = run_cli("cluster", "restored", "--config", cluster.config_url, "--without", lost)
    assert result.returncode == 0, result.stderr
    wait_until(lambda: read(cluster, "before") == {b"1" * 8192}, 60, "what was written")


def wait_devices(cluster):
    def devices():
        result = run_cli("device", "list", "--json", api=cluster.first.api)
        return json.loads(result.stdout) if result.returncode == 0 else None

    wait_until(devices, 60, "the API")
    return devices()
