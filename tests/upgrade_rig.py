"""A cluster with something of everything in it, and clients that work on while its nodes change their version."""

import json
import os
import time
from pathlib import Path

import pytest

from tools.harness.acked_writer import Ledger
from tools.harness.cluster import HOST, binary, run_cli
from tools.harness.device import log_files
from tools.harness.process import free_port, wait_until
from tools.harness.run import run
from tools.harness.steady import ByIscsi, ByNbd, ByNvme, SteadyClient

AFTER = binary()
BEFORE = Path(os.environ["AZEKURA_BEFORE"]) if os.environ.get("AZEKURA_BEFORE") else None
NO_EARLIER = pytest.mark.skipif(not BEFORE, reason="./dev upgrade builds the earlier version first, or takes --before")
# Where a run notes what it has measured, a line of JSON for each restart.
NOTES = os.environ.get("AZEKURA_UPGRADE_NOTES")

VOLUME = "64MiB"
BLOCKS = 96
# A block in each chunk and more, so that every group of a volume has some.
STRIDE = 64 * 2**20 // 4096 // BLOCKS
ROTATED_WITHIN_S = 180


def by_tcp(node, volume):
    return ByNbd(node, volume, tcp=True)


class World:
    """Three nodes, volumes of every kind, and a client on each volume that is in use."""

    def __init__(self, make_cluster, config):
        self.config = config
        self.cluster = make_cluster(start=False, config=config, device_size="512MiB", api_access="grants")
        if config == "etcd":
            # Beside a plain cluster of one shard a node, one with TLS between nodes and two shards.
            self.cluster.transport = "tls"
            self.cluster.node_options = ("--trusted-config", "--devices", 2, "--shards", 2)
        for node in self.cluster.nodes:
            node.iscsi, node.nvme = f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"
            node.options = ["--iscsi", node.iscsi, "--nvme", node.nvme, "--key-file", self.key_file(node)]
        self.clients = []
        # What volumes that nobody writes have to hold: ledgers.
        self.still = {}
        self.made = 0

    @staticmethod
    def key_file(node):
        path = node.cluster.folder / f"{node.name}.kek"
        path.write_text(f"1 {'7' * 64}\n")
        path.chmod(0o600)
        return path

    def start(self, program):
        """Starts all nodes with a version, makes the volumes, and lets the clients begin."""
        cluster = self.cluster
        cluster.program = program
        cluster.start()
        cluster.create_volume("plain", VOLUME, shared=True)
        cluster.cli("class", "create", "three", "--copies", 3, "--ack", "majority", "--overcommit", 64,
                    "--io-timeout", "never")  # fmt: skip
        for name, options in {
            "safe": ["--copies", 2, "--encrypt", "--shared"],
            "scsi": ["--copies", 2, "--shared"],
            "nvme": ["--class", "three", "--shared"],
            "mine": ["--copies", 2],
            "fio": ["--copies", 2],
        }.items():
            cluster.cli("volume", "create", name, VOLUME, *options)
        cluster.cli("project", "create", "team")
        cluster.cli("volume", "create", "team/data", VOLUME, "--copies", 2)
        self.token = cluster.cli("token", "create", "ann", "--role", "user", "--project", "team").strip()
        cluster.cli("volume", "attach", "mine", "--node", "n2")
        cluster.wait_healthy()
        self.keep_origins()
        n1, n2, n3 = cluster.nodes
        self.work(ByNbd, "plain", [n1, n2, n3])
        self.work(by_tcp, "safe", [n2, n3, n1])
        self.work(ByIscsi, "scsi", [n3, n1, n2])
        self.work(ByNvme, "nvme", [n1, n3, n2])
        self.work(ByNbd, "mine", [n2])
        self.go_on()

    def keep_origins(self):
        """Snapshots and clones of volumes that hold something by now, plain and encrypted; nobody writes them again."""
        for volume in ["plain", "safe", "team/data"]:
            ledger = Ledger(BLOCKS, stride=STRIDE)
            client = SteadyClient(ByNbd, volume, self.cluster.nodes[:1], ledger, rate=1000)
            client.start()
            client.go_on(2 * BLOCKS)
            client.finish()
            self.cluster.cli("snapshot", "create", f"{volume}@origin")
            self.still[f"{volume}@origin"] = ledger
        for volume in ["plain", "safe"]:
            self.cluster.cli("volume", "clone", f"{volume}@origin", f"{volume}-twin")
            self.still[f"{volume}-twin"] = self.still[f"{volume}@origin"]
        self.still["team/data"] = self.still["team/data@origin"]
        self.cluster.wait_healthy()

    def work(self, way, volume, nodes):
        origin = self.still.get(f"{volume}@origin")
        ledger = Ledger(BLOCKS, stride=STRIDE)
        if origin is not None:
            ledger.acked.update(origin.acked)
            ledger.version = origin.version
        client = SteadyClient(way, volume, nodes, ledger, seed=len(self.clients))
        self.clients.append(client)
        client.start()

    def go_on(self, count=30):
        """Every client has so many more writes acknowledged, without an error."""
        for client in self.clients:
            client.go_on(count)

    def replace(self, node, program, stop="stop"):
        """Stops a node, or kills it, and starts it with this version, as docs/operations/upgrades.md says."""
        for client in self.clients:
            client.take_longest_s()
        began = time.monotonic()
        getattr(node, stop)()
        node.program = program
        node.start()
        self.cluster.wait_healthy()
        took = time.monotonic() - began
        self.go_on()
        waits = {client.volume: round(client.take_longest_s(), 2) for client in self.clients}
        self.note(what=stop, node=node.name, to=versions(program), healthy_s=round(took, 1), waits_s=waits)

    def note(self, **what):
        if NOTES:
            with open(NOTES, "a") as notes:
                notes.write(json.dumps({"config": self.config, **what}) + "\n")

    def asks(self, *words, program, node):
        """A command of one version, sent to a node of perhaps another."""
        return run_cli(*words, api=node.api, program=program)

    def change(self, node):
        """Volumes and snapshots are made, resized and deleted through a node, and hold what they should."""
        cluster, number = self.cluster, self.made
        self.made += 1
        name = f"new{number}"
        cluster.cli("volume", "create", name, VOLUME, "--copies", 2, "--encrypt", node=node)
        cluster.cli("volume", "resize", name, "96MiB", node=node)
        cluster.wait_healthy()
        ledger = Ledger(BLOCKS, stride=STRIDE)
        client = SteadyClient(ByNbd, name, [node], ledger, seed=number, rate=1000)
        client.start()
        client.go_on(BLOCKS)
        cluster.cli("snapshot", "create", f"{name}@cut", node=node)
        cluster.cli("snapshot", "create", f"plain@cut{number}", node=node)
        client.finish()
        cluster.cli("volume", "clone", f"{name}@cut", f"{name}-clone", node=node)
        cluster.cli("volume", "delete", f"{name}-clone", "--yes", "--force", node=node)
        cluster.cli("snapshot", "delete", f"{name}@cut", node=node)
        self.still[name] = ledger
        if number > 0:
            # What was made through another node, perhaps of another version, goes through this one.
            gone = f"new{number - 1}"
            cluster.cli("volume", "delete", gone, "--yes", "--force", "--snapshots", node=node)
            del self.still[gone]
        cluster.wait_healthy()

    def fio(self, node):
        """fio writes at random with checksums, and reads it back."""
        words = ["--name=fio", "--ioengine=nbd", f"--uri={node.uri('fio')}", "--rw=randwrite", "--bs=4k", "--size=24M"]
        words += ["--iodepth=8", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0"]
        run("fio", *words, "--minimal")

    def rotate(self, meanwhile=lambda: None):
        """The encrypted volumes get another data key while they are used."""
        self.cluster.cli("volume", "rotate-key", "safe")

        def is_done():
            meanwhile()
            return all(volume["done"] for volume in self.cluster.json("volume", "key", "safe")["volumes"])

        wait_until(is_done, ROTATED_WITHIN_S, "another data key")
        self.go_on()

    def verify(self):
        """Clients go on; every volume and snapshot that nobody writes holds what was promised, through every node."""
        self.go_on()
        for node in self.cluster.nodes:
            for name, ledger in self.still.items():
                faults = ledger.check(node.uri(name))
                assert not faults, (node.name, name, faults[:3])

    def stop_and_check(self):
        """Scrubs find nothing while clients work on. When all have ended, devices are sound; and when the nodes are
        started again, what was promised is there."""
        self.verify()
        cluster = self.cluster
        for volume in ["plain", "safe", "scsi", "nvme", "mine"]:
            found = cluster.json("scrub", volume, "--wait")
            assert (found["findings"], found["found"]) == (0, []), (volume, found)
        for client in self.clients:
            client.finish()
        ledgers = {client.volume: client.ledger for client in self.clients}
        self.clients = []
        cluster.stop()
        self.check_stores(AFTER, expected=0)
        cluster.start()
        cluster.cli("volume", "detach", "mine", "--node", "n2")
        for node in cluster.nodes:
            for name, ledger in {**ledgers, **self.still}.items():
                faults = ledger.check(node.uri(name))
                assert not faults, (node.name, name, faults[:3])
        cluster.stop()

    def check_stores(self, program, expected):
        """`azekura store check --deep` of every device of the stopped cluster; `expected` is how many have faults."""
        folders = [path.parent for node in self.cluster.nodes for path in log_files(node)]
        checked = [run_cli("store", "check", folder, "--deep", program=program) for folder in folders]
        unsound = [result.stdout + result.stderr for result in checked if result.returncode != 0]
        assert expected is None or len(unsound) == expected, unsound
        return unsound

    def leader(self, asked):
        """The node that leads the control plane, as `asked` knows it; `None`: nobody does."""
        listed = run_cli("node", "list", "--json", api=asked.api)
        names = [node["name"] for node in json.loads(listed.stdout) if node["leader"]] if listed.returncode == 0 else []
        return next((node for node in self.cluster.nodes if node.name in names), None)

    def leader_of(self, program):
        """Has a node of this version lead the control plane, and gives it: leaders are stopped until one is.

        With etcd, all nodes of the other version are away until then; n1 with the embedded server can't be.
        """
        cluster = self.cluster
        for _ in range(12):
            found = wait_until(lambda: self.leader(cluster.first), 60, "a leader")
            if (found.program or cluster.program) == program:
                return found
            others = [node for node in cluster.nodes if (node.program or cluster.program) != program]
            stopped = others if self.config == "etcd" else [found]
            for node in stopped:
                node.stop()
            asked = next(node for node in cluster.nodes if node.alive)
            if cluster.first.alive or self.config == "etcd":
                wait_until(lambda: self.leader(asked) not in (None, *stopped), 60, "another leader")  # noqa: B023
            for node in stopped:
                node.start()
            cluster.wait_healthy()
        raise AssertionError(f"no node of {program} came to lead")

    def end(self):
        for client in self.clients:
            client.wanted = False


def versions(program):
    return "before" if program == BEFORE else "after"
