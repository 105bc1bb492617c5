"""A cluster of real azekura processes on the loopback, in a folder of its own, on ports of its own."""

import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from .device import log_files
from .process import Process, free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
HEALTHY_WITHIN_S = 120
CLI_WITHIN_S = 90


def binary():
    """The azekura binary under test: AZEKURA_BIN, or the release build."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return Path(os.environ.get("AZEKURA_BIN", target / "release" / "azekura"))


class CliError(Exception):
    """The azekura command ended with an error; the message is what it printed."""

    def __init__(self, arguments, result):
        super().__init__(
            f"azekura {' '.join(arguments)}: exit code {result.returncode}\n{result.stdout}{result.stderr}"
        )
        self.code = result.returncode
        self.stderr = result.stderr


def run_cli(*arguments, api=None, within_s=CLI_WITHIN_S, program=None):
    """Runs the azekura command and returns the finished process; no judgement of its exit code."""
    environment = {**os.environ, **({"AZEKURA_API": api} if api else {})}
    command = [str(program or binary()), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=within_s, env=environment)


class Node:
    """One azekura process with its data folder and addresses, which stay the same over restarts."""

    def __init__(self, cluster, number):
        self.cluster = cluster
        self.number = number
        self.name = f"n{number}"
        self.data = cluster.folder / self.name
        # The address of its machine, from its next start on.
        self.host = HOST
        self.listen_port = free_port()
        self.api_port = free_port()
        self.nbd_port = free_port()
        self.socket = cluster.folder / f"{self.name}.nbd"
        # Disks and patterns of disks, instead of files in the data folder.
        self.disks = []
        # Its configuration servers, where they are not the cluster's.
        self.config = None
        # Further options of this node, from its next start on.
        self.options = []
        # The azekura binary of this node, from its next start on; the cluster's, unless said.
        self.program = None
        self.process = None

    @property
    def api(self):
        # Where the port asks for grants, the node's own socket does not.
        if self.cluster.api_access == "grants":
            return f"unix:{self.data}/api.sock"
        return f"http://{self.host}:{self.api_port}"

    @property
    def pid(self):
        return self.process.pid

    @property
    def alive(self):
        return self.process is not None and self.process.alive

    def uri(self, volume="vol1", tcp=False):
        if tcp:
            return f"nbd://{self.host}:{self.nbd_port}/{volume}"
        return f"nbd+unix:///{volume}?socket={self.socket}"

    def arguments(self):
        words = ["node", "--name", self.name, "--data", self.data]
        words += ["--listen", f"{self.host}:{self.listen_port}", "--api", f"{self.host}:{self.api_port}"]
        words += ["--nbd", f"{self.host}:{self.nbd_port}", "--nbd-socket", self.socket]
        words += ["--config", self.config or self.cluster.config_url]
        for disk in self.disks:
            words += ["--disk", disk]
        if not self.disks:
            words += ["--device-size", self.cluster.device_size]
        if self.number <= len(self.cluster.sites):
            words += ["--site", self.cluster.sites[self.number - 1]]
        if self.cluster.config == "embedded" and self.number == 1:
            words += ["--serve-config", f"{self.host}:{self.cluster.config_port}"]
            if self.cluster.config_tls:
                words += ["--serve-config-transport", "tls"]
        if self.cluster.transport is not None:
            words += ["--transport", self.cluster.transport]
        if self.cluster.api_access is not None:
            words += ["--api-access", self.cluster.api_access]
        words += self.cluster.node_options
        words += self.options
        return [str(word) for word in words]

    def start(self):
        assert not self.alive, f"{self.name} is running"
        command = [self.program or self.cluster.program, *self.arguments()]
        self.process = Process(command, self.cluster.folder / f"{self.name}.log")

    def stop(self):
        """A clean stop, as a service manager asks for it: SIGTERM, exit code 0."""
        code = self.process.stop()
        assert code == 0, f"{self.name} ended with code {code} after SIGTERM\n{self.process.log_tail()}"

    def kill(self):
        """SIGKILL: the process loses everything that it had not written."""
        self.process.kill()

    def log(self):
        return self.process.log_text() if self.process else ""


class Cluster:
    """Nodes n1…nN and their configuration server: "embedded" (inside n1), "etcd" (Debian's), or the URL of another."""

    def __init__(
        self,
        folder,
        nodes=3,
        config="embedded",
        device_size="512MiB",
        sites=(),
        node_options=(),
        program=None,
        transport=None,
        api_access=None,
        config_tls=False,
    ):
        self.folder = Path(folder)
        # The azekura binary of its nodes and of the commands that are sent to them.
        self.program = program or binary()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config = config
        self.device_size = device_size
        # The site of each node; nodes beyond them name none.
        self.sites = tuple(sites)
        # Further options of every node.
        self.node_options = tuple(node_options)
        # How the nodes are to talk with each other; where nothing is said they decide: on a loopback, plain.
        self.transport = transport
        # Whether the API asks for grants; where nothing is said they decide: on a loopback, no.
        self.api_access = api_access
        # Whether the embedded server speaks TLS; nodes then join by tokens.
        self.config_tls = config_tls
        # Classes whose volumes may promise more than the devices hold, and wait for as long as it takes.
        self.generous = set()
        self.config_port = free_port()
        self.etcd = None
        self.etcd_peer_port = free_port() if config == "etcd" else None
        self.nodes = [Node(self, number) for number in range(1, nodes + 1)]

    @property
    def config_url(self):
        if "://" in self.config:
            return self.config
        return f"{'https' if self.config_tls else 'http'}://{HOST}:{self.config_port}"

    @property
    def first(self):
        return self.nodes[0]

    def start(self):
        """Starts what is not running and waits until the cluster calls itself healthy."""
        if self.config == "etcd":
            self.start_etcd()
        new = {node.name for node in self.nodes if node.process is None}
        for node in self.nodes:
            if not node.alive:
                node.start()
        # A cluster of which not all nodes have joined yet is healthy as well.
        wait_until(lambda: new <= self.with_devices(), HEALTHY_WITHIN_S, "all nodes' devices")
        self.wait_healthy()
        return self

    def with_devices(self):
        """The names of nodes of which the cluster knows a device."""
        for node in self.nodes:
            assert node.alive, f"{node.name} ended\n{node.process.log_tail()}"
        listed = run_cli("device", "list", "--json", api=self.first.api, program=self.program)
        return {device["node_name"] for device in json.loads(listed.stdout)} if listed.returncode == 0 else set()

    def start_etcd(self):
        if self.etcd is not None and self.etcd.alive:
            return
        peer = f"http://{HOST}:{self.etcd_peer_port}"
        command = ["etcd", "--name", "only", "--data-dir", self.folder / "etcd"]
        command += ["--listen-client-urls", self.config_url, "--advertise-client-urls", self.config_url]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"only={peer}", "--logger", "zap"]
        self.etcd = Process(command, self.folder / "etcd.log")
        wait_until(self.etcd_healthy, 60, "etcd's health")

    def etcd_healthy(self):
        assert self.etcd.alive, f"etcd ended\n{self.etcd.log_tail()}"
        try:
            with urllib.request.urlopen(f"{self.config_url}/health", timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def wait_healthy(self, within_s=HEALTHY_WITHIN_S):
        last = None

        def healthy():
            nonlocal last
            for node in self.nodes:
                assert node.alive, f"{node.name} ended\n{node.process.log_tail()}"
            last = run_cli("status", "--wait", "2", api=self.first.api, program=self.program)
            return last.returncode == 0

        try:
            wait_until(healthy, within_s, "the cluster's health")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{last.stdout}{last.stderr}\n{self.first.process.log_tail()}") from None

    def cli(self, *arguments, node=None):
        """Runs a CLI command against a node and returns its standard output; CliError when it fails."""
        words = [str(word) for word in arguments]
        result = run_cli(*words, api=(node or self.first).api, program=self.program)
        if result.returncode != 0:
            raise CliError(words, result)
        return result.stdout

    def json(self, *arguments, node=None):
        return json.loads(self.cli(*arguments, "--json", node=node))

    def json_of_unhealthy(self, *arguments):
        """The output of a command that may end with exit code 1 because not all is well."""
        return json.loads(run_cli(*arguments, "--json", api=self.first.api, program=self.program).stdout)

    def create_volume(self, name="vol1", size="1GiB", copies=2, shared=False, block=None):
        """A volume for one node's clients at a time, or for those of all nodes; `block`: bytes of a logical block."""
        options = (["--shared"] if shared else []) + (["--logical-block-size", block] if block else [])
        made = self.json("volume", "create", name, size, "--copies", copies, *options)
        if made["class"] not in self.generous:
            # Devices are small, since a new one is written once from end to end; and on a machine that is slow today a
            # node's start may take longer than clients wait by default.
            self.cli("class", "set", made["class"], "--overcommit", 64, "--io-timeout", "never")
            self.generous.add(made["class"])
        self.wait_healthy()
        return name

    def delete_volume(self, name):
        """Whatever hangs on it; clones stay."""
        self.cli("volume", "delete", name, "--yes", "--force", "--snapshots")

    def used_bytes(self):
        """Live bytes on all devices, as the cluster counts them."""
        return sum(device["used_bytes"] for device in self.json("device", "list"))

    def kill_all(self):
        """SIGKILL to every node, as close together as signals go: a power cut of the whole room."""
        for node in self.nodes:
            node.process.signal(signal.SIGKILL)
        for node in self.nodes:
            node.kill()

    def stop(self):
        """A clean stop of everything; n1 and etcd, which the others may ask, go last."""
        for node in reversed(self.nodes):
            if node.alive:
                node.stop()
        if self.etcd is not None and self.etcd.alive:
            self.etcd.stop()

    def unsound(self):
        """How many devices of the stopped cluster `azekura store check --deep` finds fault with."""
        folders = [path.parent for node in self.nodes for path in log_files(node)]
        return sum(
            run_cli("store", "check", folder, "--deep", program=self.program).returncode != 0 for folder in folders
        )

    def destroy(self):
        """Ends everything at once and deletes the folder."""
        for node in self.nodes:
            if node.alive:
                node.kill()
        if self.etcd is not None and self.etcd.alive:
            self.etcd.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
