"""What a machine of the cluster does in its own namespaces: network, folders, control groups, containerd, kubelet."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import images
from .place import (
    ADDRESS,
    CONTAINERD,
    DOMAIN,
    FOLDERS,
    IMAGE_FILES,
    KEYS,
    LOGS,
    PODS,
    ROOT,
    SERVICES,
    environment,
    machines,
)
from .programs import Programs, run, until

CGROUP = Path("/sys/fs/cgroup")
CONTROLLERS = ("blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids", "systemd")
# Kubelet sets these for the whole machine: it is shown files instead.
SHOWN = ("kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops")
SHOWN += ("vm/overcommit_memory", "vm/panic_on_oom")
OWN_FOLDERS = ("/run/containerd", "/run/azekura-csi", "/run/netns", "/var/lib/azekura", "/var/lib/azekura-etcd")
OWN_FOLDERS += ("/var/lib/cni", "/var/lib/kubelet", "/var/log/containers", "/var/log/pods")

CONTAINERD_SETTINGS = """version = 2
root = "{state}/containerd"
state = "/run/containerd/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{state}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""
NETWORK = """{{"cniVersion": "0.4.0", "name": "pods", "plugins": [{{"type": "ptp", "ipam":
  {{"type": "host-local", "subnet": "{pods}", "routes": [{{"dst": "0.0.0.0/0"}}]}}}}]}}
"""
KUBELET = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {{ enabled: false }}
  webhook: {{ enabled: true }}
  x509: {{ clientCAFile: {keys}/ca.crt }}
authorization: {{ mode: Webhook }}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix://{socket}
clusterDNS: ["{address}"]
clusterDomain: {domain}
resolvConf: ""
syncFrequency: 5s
imageGCHighThresholdPercent: 100
evictionHard: {{ nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%", memory.available: 50Mi }}
"""


def start(which):
    """Makes the machine's namespaces, and leaves; called in the cluster's. Its folders may be of a former life."""
    which.state.mkdir(parents=True, exist_ok=True)
    namespaces = ["unshare", "--mount", "--net", "--pid", "--propagation", "private", "--fork", "--kill-child"]
    command = [*namespaces, "--mount-proc", sys.executable, "-m", "tools.kubernetes", "machine-enter", which.name]
    with open(LOGS / f"{which.name}.log", "ab") as log:
        holder = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=log, stderr=log, start_new_session=True)
    which.pid_file.write_text(str(holder.pid))
    plug_in(which, holder.pid)


def plug_in(which, holder):
    """Its end of the bridge; the machine waits for that. Joined from outside, as a cable is."""
    inner = Path(f"/proc/{holder}/task/{holder}/children")
    until(f"the first process of {which.name}", "grep", "-q", ".", inner)
    pid = inner.read_text().split()[0]
    run("ip", "link", "add", which.link, "type", "veth", "peer", "name", "machines", "netns", pid)
    run("ip", "link", "set", which.link, "master", "machines", "up")


def join_groups(name):
    """Joins control groups of that name below its own, and gives their folders. `unshare --cgroup` comes next. Who has
    come into the namespace from outside is still in groups outside of it: then the new ones are at its root."""
    made = []
    version_two = (CGROUP / "cgroup.controllers").exists()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, own = line.split(":", 2)
        below = "" if own.startswith("/..") else own.strip("/")
        if version_two:
            made.append(CGROUP / below / name / "first")
        for controller in names.removeprefix("name=").split(","):
            if controller in CONTROLLERS and (CGROUP / controller).is_dir():
                made.append(CGROUP / controller / below / name)
    for group in made:
        group.mkdir(parents=True, exist_ok=True)
        if group.parts[4] == "cpuset":
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (group / setting).write_text((group.parent / setting).read_text())
        (group / "cgroup.procs").write_text(str(os.getpid()))
    return made


def see_own_groups():
    """Mounts the control groups as the namespace has them: with the own ones at the root."""
    version_two = (CGROUP / "cgroup.controllers").exists()
    run("umount", "--recursive", CGROUP)
    if version_two:
        run("mount", "-t", "cgroup2", "none", CGROUP)
        return
    run("mount", "-t", "tmpfs", "-o", "mode=755", "none", CGROUP)
    for name in CONTROLLERS:
        (CGROUP / name).mkdir()
        options = "none,name=systemd" if name == "systemd" else name
        mounted = subprocess.run(["mount", "-t", "cgroup", "-o", options, "none", CGROUP / name], capture_output=True)
        if mounted.returncode != 0:
            (CGROUP / name).rmdir()


def enter(which):
    join_groups(which.name)
    os.execvp("unshare", ["unshare", "--cgroup", sys.executable, "-m", "tools.kubernetes", "machine-run", which.name])


def network(which):
    run("ip", "link", "set", "lo", "up")
    until(f"the network of {which.name}", "ip", "link", "set", "machines", "up")
    run("ip", "address", "add", f"{which.address}/24", "dev", "machines")
    run("ip", "route", "add", "default", "via", ADDRESS)
    for other in machines():
        if other != which:
            run("ip", "route", "add", other.pods, "via", other.address)


def folders(which):
    shown = which.state / "shown"
    shown.mkdir(exist_ok=True)
    for setting in SHOWN:
        original = Path("/proc/sys") / setting
        if original.exists():
            copy = shown / original.name
            copy.write_text(original.read_text())
            run("mount", "--bind", copy, original)
    for folder in OWN_FOLDERS:
        own = which.state / "root" / folder.lstrip("/")
        own.mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", own, folder)
        run("mount", "--make-rshared", folder)


def make_mount_points():
    """Folders that each machine mounts its own on. Those that were not there before are noted, for `down`."""
    for folder in OWN_FOLDERS:
        if not Path(folder).exists():
            Path(folder).mkdir(parents=True)
            with open(FOLDERS, "a") as made:
                made.write(f"{folder}\n")


def first_process(which):
    os.environ.update(environment())
    run("mount", "--make-rshared", "/")
    programs = Programs()
    network(which)
    see_own_groups()
    # What is in memory does not outlive a machine's end.
    shutil.rmtree(which.state / "root/run", ignore_errors=True)
    folders(which)
    (which.state / "cni").mkdir(exist_ok=True)
    (which.state / "cni/10-pods.conflist").write_text(NETWORK.format(pods=which.pods))
    settings = CONTAINERD_SETTINGS.format(state=which.state, socket=CONTAINERD, pause=images.PAUSE)
    (which.state / "containerd.toml").write_text(settings)
    programs.start(f"{which.name}-containerd", "containerd", "--config", which.state / "containerd.toml")
    until("containerd", "ctr", "version")
    for file in IMAGE_FILES.read_text().splitlines():
        run("ctr", "--namespace", "k8s.io", "images", "import", file)
    kubelet = KUBELET.format(keys=KEYS, socket=CONTAINERD, address=ADDRESS, domain=DOMAIN)
    (which.state / "kubelet.yaml").write_text(kubelet)
    programs.start(
        f"{which.name}-kubelet",
        "kubelet",
        f"--config={which.state}/kubelet.yaml",
        f"--kubeconfig={KEYS}/kubelet-{which.name}.conf",
        f"--hostname-override={which.name}",
        f"--node-ip={which.address}",
        f"--node-labels=topology.kubernetes.io/zone={which.zone}",
        f"--cert-dir={which.state}/kubelet-keys",
        "--v=2",
    )
    # Services lead to their pods, and NetworkPolicies are kept: by programs that ask the API server for their machine.
    until(f"{which.name} in the cluster", "kubectl", "get", "node", which.name)
    kubeconfig = f"--kubeconfig={KEYS}/admin.conf"
    programs.start(
        f"{which.name}-proxy",
        "kube-proxy",
        kubeconfig,
        f"--hostname-override={which.name}",
        "--proxy-mode=nftables",
        f"--cluster-cidr={PODS}",
        # These are the whole machine's to set.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-close-wait=0s",
        "--conntrack-tcp-timeout-established=0s",
    )
    programs.start(
        f"{which.name}-firewall",
        "kube-router",
        kubeconfig,
        f"--hostname-override={which.name}",
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        f"--service-cluster-ip-range={SERVICES}",
    )
    programs.wait()
