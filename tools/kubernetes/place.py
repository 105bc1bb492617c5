"""Where everything of the cluster is, and its addresses."""

import os
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

ADDRESS = "10.77.0.1"
API_SERVICE = "10.96.0.1"
PODS = "10.88.0.0/24"
DOMAIN = "cluster.local"
MACHINE = "node1"
ZONE = "zone-a"

CLUSTER_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
CONTAINERD = "/run/containerd/containerd.sock"


def inner_pid():
    """The first process of the cluster's namespaces, as the machine numbers it; None where there is none."""
    try:
        outer = int(OUTER_PID.read_text())
        return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        return None


def entered(command):
    """The command, in the cluster's namespaces."""
    pid = inner_pid()
    if pid is None:
        raise SystemExit("kubernetes: no cluster runs here: ./dev kubernetes up")
    return ["nsenter", "-t", str(pid), "-m", "-n", "-p", "-C", f"--wd={os.getcwd()}", *map(str, command)]


def environment():
    path = f"{PROGRAMS}:{ROOT / 'target/tools/go'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "KUBECONFIG": str(KEYS / "admin.conf")}
