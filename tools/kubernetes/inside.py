"""What runs in the cluster's namespaces: `enter` makes them, `run` is their first process."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from . import images
from .place import (
    ADDRESS,
    API_SERVICE,
    CGROUPS,
    CLUSTER_PROGRAMS,
    CONTAINERD,
    DOMAIN,
    FOLDERS,
    KEYS,
    LOGS,
    MACHINE,
    PODS,
    PROGRAMS,
    READY,
    STATE,
    ZONE,
    environment,
)

CGROUP = Path("/sys/fs/cgroup")
CONTROLLERS = ("blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids", "systemd")
# Kubelet sets these for the whole machine: it is shown files instead.
SHOWN = ("kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops")
SHOWN += ("vm/overcommit_memory", "vm/panic_on_oom")
OWN_FOLDERS = ("/run/containerd", "/run/azekura-csi", "/var/lib/azekura", "/var/lib/azekura-etcd", "/var/lib/cni")
OWN_FOLDERS += ("/var/lib/kubelet", "/var/log/containers", "/var/log/pods")
WITHIN_S = 180

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


def run(*command):
    subprocess.run(list(map(str, command)), check=True)


def enter():
    """Joins control groups of the cluster's own; then `run` follows in a namespace of control groups."""
    made = []
    if (CGROUP / "cgroup.controllers").exists():
        made.append(CGROUP / Path("/proc/self/cgroup").read_text().strip().split("::/")[1] / "azekura-kubernetes/first")
    else:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, own = line.split(":", 2)
            for name in names.removeprefix("name=").split(","):
                if name in CONTROLLERS and (CGROUP / name).is_dir():
                    made.append(CGROUP / name / own.strip("/") / "azekura-kubernetes")
    for group in made:
        group.mkdir(parents=True, exist_ok=True)
        if group.parts[4] == "cpuset":
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (group / setting).write_text((group.parent / setting).read_text())
        (group / "cgroup.procs").write_text(str(os.getpid()))
    CGROUPS.write_text("".join(f"{group}\n" for group in made))
    os.execvp("unshare", ["unshare", "--cgroup", sys.executable, "-m", "tools.kubernetes", "inside-run"])


class Programs:
    """What was started, and whether it is still there: the first process of a namespace has to look after all."""

    def __init__(self):
        self.running = {}

    def start(self, name, *command):
        log = open(LOGS / f"{name}.log", "ab")
        started = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.running[started.pid] = name
        print(f"{time.strftime('%T')} started {name}", flush=True)

    def wait(self):
        """Until nothing is left. Processes whose parents have ended come here, too."""
        while True:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                return
            if pid in self.running:
                print(f"{time.strftime('%T')} {self.running.pop(pid)} has ended: {status}", flush=True)


def until(what, *command):
    end = time.monotonic() + WITHIN_S
    while subprocess.run(list(map(str, command)), capture_output=True).returncode != 0:
        if time.monotonic() > end:
            raise SystemExit(f"{what} does not answer within {WITHIN_S} s: see {LOGS}")
        time.sleep(0.5)


def network():
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "outside", "type", "veth", "peer", "name", "beyond")
    run("ip", "address", "add", f"{ADDRESS}/24", "dev", "outside")
    run("ip", "link", "set", "beyond", "up")
    run("ip", "link", "set", "outside", "up")
    run("ip", "route", "add", "default", "dev", "outside")
    # There is no kube-proxy: the API server's own service leads here.
    run("ip", "address", "add", f"{API_SERVICE}/32", "dev", "lo")


def control_groups():
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


def folders():
    shown = STATE / "shown"
    shown.mkdir(exist_ok=True)
    for setting in SHOWN:
        original = Path("/proc/sys") / setting
        if original.exists():
            copy = shown / original.name
            copy.write_text(original.read_text())
            run("mount", "--bind", copy, original)
    for folder in OWN_FOLDERS:
        own = STATE / "machine" / folder.lstrip("/")
        own.mkdir(parents=True, exist_ok=True)
        if not Path(folder).exists():
            Path(folder).mkdir(parents=True)
            with open(FOLDERS, "a") as made:
                made.write(f"{folder}\n")
        run("mount", "--bind", own, folder)
        run("mount", "--make-rshared", folder)


def control_plane(programs):
    for name in CLUSTER_PROGRAMS:
        link = PROGRAMS / name
        link.unlink(missing_ok=True)
        link.symlink_to("cluster")
    client, peer = "http://127.0.0.1:12379", "http://127.0.0.1:12380"
    programs.start(
        "etcd",
        "etcd",
        f"--data-dir={STATE / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    )
    programs.start(
        "kube-apiserver",
        "kube-apiserver",
        f"--etcd-servers={client}",
        "--secure-port=443",
        f"--advertise-address={ADDRESS}",
        f"--service-cluster-ip-range={API_SERVICE}/16",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={KEYS}/ca.crt",
        f"--tls-cert-file={KEYS}/server.crt",
        f"--tls-private-key-file={KEYS}/server.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={KEYS}/accounts.pub",
        f"--service-account-signing-key-file={KEYS}/accounts.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={KEYS}/to-kubelet.crt",
        f"--kubelet-client-key={KEYS}/to-kubelet.key",
    )
    until("the API server", "kubectl", "get", "--raw", "/readyz")
    for name, own in (("kube-controller-manager", "controllers"), ("kube-scheduler", "scheduler")):
        config = f"{KEYS}/{own}.conf"
        more = []
        if own == "controllers":
            more = [f"--service-account-private-key-file={KEYS}/accounts.key", f"--root-ca-file={KEYS}/ca.crt"]
            more += ["--use-service-account-credentials", "--controllers=*"]
        asked = [f"--{which}kubeconfig={config}" for which in ("", "authentication-", "authorization-")]
        programs.start(name, name, *asked, "--leader-elect=false", *more)
    programs.start("names", "names", f"-kubeconfig={KEYS}/admin.conf", f"-listen={ADDRESS}:53", f"-domain={DOMAIN}")


def machine(programs, suite):
    (STATE / "cni").mkdir(exist_ok=True)
    (STATE / "cni/10-pods.conflist").write_text(NETWORK.format(pods=PODS))
    settings = CONTAINERD_SETTINGS.format(state=STATE, socket=CONTAINERD, pause=images.PAUSE)
    (STATE / "containerd.toml").write_text(settings)
    programs.start("containerd", "containerd", "--config", STATE / "containerd.toml")
    until("containerd", "ctr", "version")
    for file in images.make(suite):
        run("ctr", "--namespace", "k8s.io", "images", "import", file)
    kubelet = KUBELET.format(keys=KEYS, socket=CONTAINERD, address=ADDRESS, domain=DOMAIN)
    (STATE / "kubelet.yaml").write_text(kubelet)
    programs.start(
        "kubelet",
        "kubelet",
        f"--config={STATE}/kubelet.yaml",
        f"--kubeconfig={KEYS}/kubelet.conf",
        f"--hostname-override={MACHINE}",
        f"--node-ip={ADDRESS}",
        f"--node-labels=topology.kubernetes.io/zone={ZONE}",
        f"--cert-dir={STATE}/kubelet-keys",
        "--v=2",
    )


def first_process(suite):
    os.environ.update(environment())
    shutil.rmtree(STATE / "containerd", ignore_errors=True)
    run("mount", "--make-rshared", "/")
    programs = Programs()
    network()
    control_groups()
    folders()
    control_plane(programs)
    machine(programs, suite)
    until("the machine", "kubectl", "wait", "--for=condition=Ready", f"node/{MACHINE}", "--timeout=5s")
    crds = Path(os.environ["AZEKURA_SNAPSHOT_CRDS"])
    for file in sorted(crds.glob("*_*.yaml")):
        run("kubectl", "apply", "--server-side", "-f", file)
    program = ["snapshot-controller", f"--kubeconfig={KEYS}/admin.conf"]
    programs.start("snapshot-controller", *program, "--feature-gates=CSIVolumeGroupSnapshot=true")
    READY.touch()
    print(f"{time.strftime('%T')} ready", flush=True)
    programs.wait()
