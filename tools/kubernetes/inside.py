"""The cluster's own namespaces: the control plane, and the network that joins the machines."""

import os
import sys
import time
from pathlib import Path

from . import images, machine
from .place import (
    ADDRESS,
    API_SERVICE,
    CGROUPS,
    CLUSTER_PROGRAMS,
    DOMAIN,
    IMAGE_FILES,
    KEYS,
    PROGRAMS,
    READY,
    SERVICES,
    STATE,
    environment,
    machines,
)
from .programs import Programs, run, until


def enter():
    """Joins control groups of the cluster's own; then `first_process` follows in a namespace of control groups."""
    CGROUPS.write_text("".join(f"{group}\n" for group in machine.join_groups("azekura-kubernetes")))
    os.execvp("unshare", ["unshare", "--cgroup", sys.executable, "-m", "tools.kubernetes", "inside-run"])


def network():
    run("ip", "link", "set", "lo", "up")
    # With an address of its own: else it has that of one of its ports, and another one when that machine dies.
    run("ip", "link", "add", "machines", "address", "02:00:0a:4d:00:01", "type", "bridge")
    run("ip", "address", "add", f"{ADDRESS}/24", "dev", "machines")
    run("ip", "link", "set", "machines", "up")
    # The API server's own Service leads here for programs that are in no machine.
    run("ip", "address", "add", f"{API_SERVICE}/32", "dev", "lo")
    for each in machines():
        run("ip", "route", "add", each.pods, "via", each.address)


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
        f"--service-cluster-ip-range={SERVICES}",
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


def first_process(suite):
    os.environ.update(environment())
    run("mount", "--make-rshared", "/")
    programs = Programs()
    network()
    machine.see_own_groups()
    machine.make_mount_points()
    control_plane(programs)
    IMAGE_FILES.write_text("".join(f"{file}\n" for file in images.make(suite)))
    for each in machines():
        machine.start(each)
    for each in machines():
        until(each.name, "kubectl", "wait", "--for=condition=Ready", f"node/{each.name}", "--timeout=5s")
    for folder in os.environ["AZEKURA_CRDS"].split(":"):
        for file in sorted(Path(folder).glob("*_*.yaml")):
            run("kubectl", "apply", "--server-side", "-f", file)
    program = ["snapshot-controller", f"--kubeconfig={KEYS}/admin.conf"]
    programs.start("snapshot-controller", *program, "--feature-gates=CSIVolumeGroupSnapshot=true")
    shown = [f"--cert-file={KEYS}/admin.crt", f"--key-file={KEYS}/admin.key", f"--ca-file={KEYS}/ca.crt"]
    programs.start("operator", "operator", f"--apiserver=https://{ADDRESS}:443", *shown, *images.OPERATOR)
    READY.touch()
    print(f"{time.strftime('%T')} ready", flush=True)
    programs.wait()
