"""What the chart can be told besides, in a real Kubernetes of one machine (./dev kubernetes test), after the other one:
an etcd of one's own, a token for the driver, the search for orphans, changed blocks, Prometheus, the machine's network.

The tests are one story, in this order: they leave to each other what they have made.
"""

import base64
import json
import subprocess
import urllib.parse

import pytest

from tools.harness.process import wait_until
from tools.kubernetes import keys
from tools.kubernetes.client import (
    NAMESPACE,
    WITHIN_S,
    address_of,
    apply,
    azekura,
    bare,
    claim,
    delete,
    get,
    helm,
    in_pod,
    kubectl,
    listed,
    pod,
    reaches,
    ready,
    rolled_out,
    run,
)
from tools.kubernetes.images import CHANGED_BLOCKS, PROMETHEUS, PROMETHEUS_VERSION
from tools.kubernetes.place import ADDRESS, KEYS, LOGS, MACHINE, STATE, entered, environment

ETCD_PORT = 22379
METADATA_NAME = "azekura-snapshot-metadata.azekura.svc"
VALUES = {
    "etcd": {"servers": [f"https://{ADDRESS}:{ETCD_PORT}"], "secret": "own-etcd"},
    # Not the folder of the story before: its node belongs to another cluster.
    "node": {"storage": {"deviceSize": "4GiB", "path": "/var/lib/azekura/options"}},
    # The kernels that this runs on have no NVMe/TCP and no NBD.
    "csi": {"attach": "fuse", "controller": {"replicas": 1}},
    "storageClasses": [
        {"name": "azekura", "parameters": {"copies": "1", "csi.storage.k8s.io/fstype": "xfs"}},
        {"name": "kept", "reclaimPolicy": "Retain", "parameters": {"copies": "1", "csi.storage.k8s.io/fstype": "xfs"}},
    ],
}
TOKEN = {"csi": {**VALUES["csi"], "controller": {"replicas": 1, "tokenSecret": "csi-token"}}}


def secret(name, kind="Opaque", **data):
    data = {key: base64.b64encode(value).decode() for key, value in data.items()}
    metadata = {"name": name, "namespace": NAMESPACE}
    apply({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata, "data": data})


def of_certificate(name):
    found = {"ca.crt": (KEYS / "ca.crt").read_bytes()}
    return {**found, "tls.crt": (KEYS / f"{name}.crt").read_bytes(), "tls.key": (KEYS / f"{name}.key").read_bytes()}


@pytest.fixture(scope="module", autouse=True)
def own_etcd():
    """An etcd that asks for certificates, and nothing of the story before: that one's chart goes."""
    keys.certificate("own-etcd", "/CN=etcd", [f"subjectAltName=IP:{ADDRESS}"])
    keys.certificate("own-etcd-client", "/CN=azekura", ["extendedKeyUsage=clientAuth"])
    url, peer = f"https://{ADDRESS}:{ETCD_PORT}", "http://127.0.0.1:22380"
    pid_file = STATE / "own-etcd.pid"
    command = ["sh", "-c", f'echo $$ > {pid_file}; exec "$@"', "sh", "etcd", f"--data-dir={STATE / 'own-etcd'}"]
    command += [f"--listen-client-urls={url}", f"--advertise-client-urls={url}", f"--listen-peer-urls={peer}"]
    command += [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}", "--client-cert-auth"]
    command += [
        f"--trusted-ca-file={KEYS}/ca.crt",
        f"--cert-file={KEYS}/own-etcd.crt",
        f"--key-file={KEYS}/own-etcd.key",
    ]
    with open(LOGS / "own-etcd.log", "ab") as log:
        started = subprocess.Popen(entered(command), env=environment(), stdout=log, stderr=log)
    if "azekura" in run("helm", "list", "-A", "-q"):
        run("helm", "uninstall", "azekura", "--namespace", NAMESPACE, "--wait")
    yield
    run("kill", pid_file.read_text().strip())
    started.wait(30)


def install(what="upgrade", **changed):
    helm(what, {**VALUES, **changed})
    rolled_out("daemonset", "azekura-node")
    rolled_out("deployment", "azekura-csi-controller")


def writes(name, class_name="azekura"):
    apply(claim(name, storageClassName=class_name), pod(name, name, "echo written > /data/file; sync; sleep 1000000"))
    ready("pod", name)
    wait_until(lambda: "written" in in_pod(name, "cat /data/file"), 10, "the file")


def test_the_configuration_in_an_etcd_of_ones_own():
    kubectl("create", "namespace", NAMESPACE, check=False)
    secret("own-etcd", **of_certificate("own-etcd-client"))
    install("install")
    assert not listed("statefulsets", namespace=NAMESPACE), "the chart makes no etcd then"
    writes("one")


def test_the_driver_with_a_token():
    token = azekura("token", "create", "kubernetes", "--role", "csi").strip().splitlines()[-1]
    secret("csi-token", token=token.encode(), **{"ca.pem": azekura("ca", "show").encode()})
    install(**TOKEN)
    controller = get("deployment", "azekura-csi-controller", NAMESPACE)["spec"]["template"]["spec"]
    assert "hostPath" not in json.dumps(controller["volumes"]), "it has the token instead of the node's socket"
    writes("two")
    azekura("token", "revoke", "kubernetes")
    apply(claim("refused"), pod("refused", "refused"))

    def told():
        return "unauth" in kubectl("describe", "pvc/refused").lower()

    wait_until(told, WITHIN_S, "the refusal of a token that was revoked")
    delete("pod/refused", "pvc/refused")
    install()


def test_orphans_are_looked_for():
    writes("orphan", "kept")
    volume = get("pvc", "orphan")["spec"]["volumeName"]
    delete("pod/orphan", "pvc/orphan", f"pv/{volume}")
    install(csi={**VALUES["csi"], "orphans": {"schedule": "* * * * *", "olderThan": "0s"}})

    def reported():
        return kubectl(
            "-n", NAMESPACE, "logs", "-l", "app.kubernetes.io/component=csi-orphans", "--tail=-1", check=False
        )

    wait_until(lambda: volume in reported(), WITHIN_S, "the orphan's name in the log of the job")
    owned = get("pvc", "one")["spec"]["volumeName"]
    assert owned not in reported()
    assert volume in azekura("volume", "list"), "it reports, and deletes nothing"
    azekura("volume", "delete", volume, "--yes")


def test_changed_blocks_for_a_backup_program():
    keys.certificate("metadata", f"/CN={METADATA_NAME}", [f"subjectAltName=DNS:{METADATA_NAME}"])
    found = of_certificate("metadata")
    secret("metadata", "kubernetes.io/tls", **found)
    told = {"enabled": True, "tlsSecret": "metadata", "caCert": found["ca.crt"].decode()}
    install(csi={**VALUES["csi"], "snapshotMetadata": told})
    writer = pod("device", "device")
    container = writer["spec"]["containers"][0]
    container["volumeDevices"] = [{"name": "v", "devicePath": "/dev/volume"}]
    del container["volumeMounts"]
    apply(claim("device", volumeMode="Block"), writer)
    ready("pod", "device")
    kind = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot"}
    spec = {"volumeSnapshotClassName": "azekura", "source": {"persistentVolumeClaimName": "device"}}
    for name, block in (("first", 5), ("second", 1000)):
        in_pod("device", f"head -c 8192 /dev/urandom | dd of=/dev/volume bs=4096 seek={block} conv=fsync 2> /dev/null")
        apply({**kind, "metadata": {"name": name}, "spec": spec})
        ready("volumesnapshot", name, "jsonpath={.status.readyToUse}=true")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "backup"}}
    rights = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    subjects = [{"kind": "ServiceAccount", "name": "backup", "namespace": "default"}]
    roles = ("azekura-snapshot-metadata-client", "azekura-snapshot-metadata-find", "backup")
    # What it does by itself: it asks for a token of its account, and for the name of an earlier snapshot's contents.
    own = [
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
        {"apiGroups": ["snapshot.storage.k8s.io"], "resources": ["volumesnapshotcontents"], "verbs": ["get"]},
    ]
    bound = [
        {
            **rights,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"backup-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        }
        for role in roles
    ]
    apply(account, {**rights, "kind": "ClusterRole", "metadata": {"name": "backup"}, "rules": own}, *bound)

    def asked(name, *words):
        command = ["/bin/changed-blocks", "-snapshot", *words, "-account", "backup"]
        # A pod is not known at once to those who keep the policies.
        apply(bare(name, CHANGED_BLOCKS, command, serviceAccountName="backup", restartPolicy="OnFailure"))
        kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"--timeout={WITHIN_S}s", f"pod/{name}")
        records = json.loads(kubectl("logs", name).splitlines()[-1])
        ranges = [each for record in records for each in record.get("block_metadata", [])]
        return [(int(each["byte_offset"]), int(each["size_bytes"])) for each in ranges]

    assert asked("allocated", "second") == [(5 * 4096, 8192), (1000 * 4096, 8192)]
    assert asked("changed", "second", "-since", "first") == [(1000 * 4096, 8192)]
    delete("pod/allocated", "pod/changed", "pod/device", "volumesnapshot/first", "volumesnapshot/second", "pvc/device")


def prometheus(about, **question):
    asked = urllib.parse.urlencode(question)
    answer = kubectl(
        "-n",
        "monitoring",
        "exec",
        "asks",
        "--",
        "wget",
        "-q",
        "-O",
        "-",
        f"http://prometheus-operated:9090/api/v1/{about}?{asked}",
    )
    return json.loads(answer)["data"]


def test_prometheus_scrapes_and_knows_the_rules():
    kubectl("create", "namespace", "monitoring", check=False)
    rights = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    watches = {"verbs": ["get", "list", "watch"]}
    rules = [
        {"apiGroups": [""], "resources": ["services", "endpoints", "pods"], **watches},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], **watches},
    ]
    apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus", "namespace": "monitoring"}},
        {**rights, "kind": "ClusterRole", "metadata": {"name": "prometheus"}, "rules": rules},
        {
            **rights,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "prometheus"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "prometheus"},
            "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}],
        },
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "Prometheus",
            "metadata": {"name": "it", "namespace": "monitoring"},
            "spec": {
                "image": PROMETHEUS,
                "imagePullPolicy": "Never",
                "version": PROMETHEUS_VERSION,
                "serviceAccountName": "prometheus",
                "serviceMonitorNamespaceSelector": {},
                "serviceMonitorSelector": {},
                "ruleNamespaceSelector": {},
                "ruleSelector": {},
            },
        },
        bare("asks", namespace="monitoring"),
    )
    token = azekura("token", "create", "prometheus", "--role", "metrics").strip().splitlines()[-1]
    secret("azekura-metrics", token=token.encode())
    monitors = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    scraped = {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}
    install(
        monitoring={"enabled": True, "interval": "2s"},
        networkPolicy={"apiFrom": [{"namespaceSelector": monitors, "podSelector": scraped}]},
    )
    ready("pod", "asks", namespace="monitoring")

    def scraped_well():
        try:
            targets = prometheus("targets", state="active")["activeTargets"]
        except AssertionError:
            return False
        return targets and all(target["health"] == "up" for target in targets) and targets

    targets = wait_until(scraped_well, WITHIN_S, "targets that are scraped")
    assert {target["labels"]["namespace"] for target in targets} == {NAMESPACE}
    [volumes] = wait_until(lambda: prometheus("query", query="azekura_cluster_volumes")["result"], 30, "a metric")
    assert int(volumes["value"][1]) == len(json.loads(azekura("volume", "list", "--json")))

    def alerts():
        return [rule for group in prometheus("rules", type="alert")["groups"] for rule in group["rules"]]

    # Unknown is what they are before the first time.
    wait_until(lambda: alerts() and all(rule["health"] != "unknown" for rule in alerts()), WITHIN_S, "the rules")
    assert len(alerts()) > 10 and {rule["health"] for rule in alerts()} == {"ok"}, alerts()
    # Prometheus alone was let in: its namespace is not enough.
    assert not reaches("asks", address_of("node"), 7180, namespace="monitoring")
    boards = get("configmap", "azekura-dashboards", NAMESPACE)["data"]
    assert all(json.loads(board)["panels"] for board in boards.values()) and len(boards) == 4


def test_nodes_in_the_network_of_their_machine():
    install(node={**VALUES["node"], "hostNetwork": True})
    machine = next(a["address"] for a in get("node", MACHINE)["status"]["addresses"] if a["type"] == "InternalIP")
    assert address_of("node") == machine
    assert in_pod("one", "cat /data/file") == "written\n"
    writes("three")
    listening = kubectl("-n", NAMESPACE, "exec", "daemonset/azekura-node", "--", "azekura", "node", "list")
    assert machine in listening


def test_what_the_story_has_made_is_gone():
    names = ("one", "two", "three")
    delete(*(f"pod/{name}" for name in names))
    delete(*(f"pvc/{name}" for name in names))
    wait_until(lambda: json.loads(azekura("volume", "list", "--json")) == [], WITHIN_S, "the volumes' end")
