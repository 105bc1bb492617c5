"""Where everything of the cluster is, and its addresses."""

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tools" / "kubernetes"
# What is built, which takes long, and what a cluster writes, which goes with it.
BUILT = ROOT / "target" / "kubernetes"
PROGRAMS = BUILT / "bin"
IMAGES = ROOT / "target" / "image"
STATE = Path(os.environ.get("AZEKURA_DEV_DIR", ROOT / ".azekura")).resolve() / "kubernetes"
LOGS = STATE / "log"
KEYS = STATE / "keys"
OUTER_PID = STATE / "outer.pid"
CGROUPS = STATE / "cgroups"
# Folders of the machine that were made for something to be mounted on.
FOLDERS = STATE / "folders"
READY = STATE / "ready"
# How many machines there are.
COUNT = STATE / "count"
# Files of the images that each machine takes in.
IMAGE_FILES = STATE / "images"

# Of the API server and the others of the control plane.
ADDRESS = "10.77.0.1"
API_SERVICE = "10.96.0.1"
SERVICES = "10.96.0.0/16"
PODS = "10.88.0.0/16"
DOMAIN = "cluster.local"
ZONES = "abcdefgh"


@dataclass(frozen=True)
class Machine:
    """A node of Kubernetes, numbered from 1: namespaces of its own inside of the cluster's."""

    number: int

    @property
    def name(self):
        return f"node{self.number}"

    @property
    def address(self):
        return f"10.77.0.{10 + self.number}"

    @property
    def pods(self):
        return f"10.88.{self.number}.0/24"

    @property
    def zone(self):
        """Each is alone in its zone."""
        return f"zone-{ZONES[self.number - 1]}"

    @property
    def link(self):
        """Its end of the network that joins all machines."""
        return f"to-{self.name}"

    @property
    def state(self):
        return STATE / "machines" / self.name

    @property
    def pid_file(self):
        """The process that holds its namespaces, as the cluster's first process numbers it."""
        return self.state / "pid"


MACHINE, ZONE = Machine(1).name, Machine(1).zone

CLUSTER_PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
)
CONTAINERD = "/run/containerd/containerd.sock"


def inner_pid():
    """The first process of the cluster's namespaces, as the machine numbers it; None where there is none."""
    try:
        outer = int(OUTER_PID.read_text())
        return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        return None


def machines():
    """Those that the cluster was started with."""
    return [Machine(1 + number) for number in range(int(COUNT.read_text()))]


def machine(name):
    for known in machines():
        if known.name == name:
            return known
    raise SystemExit(f"kubernetes: there is no {name}; there are {', '.join(each.name for each in machines())}")


def entered(command):
    """The command, in the cluster's namespaces, which are those of its control plane."""
    pid = inner_pid()
    if pid is None:
        raise SystemExit("kubernetes: no cluster runs here: ./dev kubernetes up")
    return ["nsenter", "-t", str(pid), "-m", "-n", "-p", "-C", f"--wd={os.getcwd()}", *map(str, command)]


def environment():
    path = f"{PROGRAMS}:{ROOT / 'target/tools/go'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "KUBECONFIG": str(KEYS / "admin.conf")}
