"""kubectl and helm, as tests use them in the cluster."""

import json
import os
import subprocess
from pathlib import Path

from .images import POD
from .place import ROOT, entered, environment

NAMESPACE = "azekura"
WITHIN_S = 120
CHART = Path(os.environ.get("AZEKURA_CHART", ROOT / "charts/azekura"))


def run(*command, text=None, check=True):
    done = subprocess.run(entered(command), env=environment(), input=text, capture_output=True, text=True, timeout=300)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def kubectl(*words, **more):
    return run("kubectl", *words, **more)


def get(kind, name, namespace="default"):
    return json.loads(kubectl("-n", namespace, "get", kind, name, "-o", "json"))


def listed(kind, *words, namespace="default"):
    return json.loads(kubectl("-n", namespace, "get", kind, *words, "-o", "json"))["items"]


def apply(*objects):
    kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def claim(name, size="1Gi", **spec):
    wanted = {"accessModes": ["ReadWriteOnce"], "storageClassName": "azekura"}
    wanted |= {"resources": {"requests": {"storage": size}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": wanted}


def pod(name, claim_name, command="sleep 1000000", **more):
    container = {"name": "c", "image": POD, "imagePullPolicy": "Never", "command": ["sh", "-c", command]}
    container["volumeMounts"] = [{"name": "v", "mountPath": "/data"}]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}]
    spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def bare(name, image=POD, command=("sleep", "1000000"), namespace="default", labels=None, **more):
    """A pod without a volume."""
    container = {"name": "c", "image": image, "imagePullPolicy": "Never", "command": list(command)}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1, **more}
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def address_of(component):
    """The address of a pod of the chart, of the component that its label names."""
    pods = listed("pods", "-l", f"app.kubernetes.io/component={component}", namespace=NAMESPACE)
    return next(each["status"]["podIP"] for each in pods)


def reaches(name, address, port, namespace="default"):
    """The pod gets a connection to that port."""
    asked = f"nc -w 2 {address} {port} < /dev/null > /dev/null 2>&1 && echo yes || echo no"
    said = kubectl("-n", namespace, "exec", name, "--", "sh", "-c", asked)
    return {"yes": True, "no": False}[said.strip()]


def ready(kind, name, condition="condition=Ready", namespace="default", within_s=WITHIN_S):
    told = f"--for={condition}", f"--timeout={within_s}s"
    try:
        kubectl("-n", namespace, "wait", *told, f"{kind}/{name}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{kubectl('-n', namespace, 'describe', kind, name)}") from error


def in_pod(name, command):
    return kubectl("exec", name, "--", "sh", "-c", command)


def delete(*what):
    kubectl("delete", "--wait=true", "--timeout=120s", *what)


def azekura(*words):
    return kubectl("-n", NAMESPACE, "exec", "daemonset/azekura-node", "--", "azekura", *words)


def helm(what, values):
    """`install` or `upgrade` of the chart with these values."""
    words = ["helm", what, "azekura", CHART, "--namespace", NAMESPACE, "--values", "-"]
    run(*words, *(["--create-namespace"] if what == "install" else []), text=json.dumps(values))


def rolled_out(kind, name, within_s=WITHIN_S):
    kubectl("-n", NAMESPACE, "rollout", "status", f"{kind}/{name}", f"--timeout={within_s}s")
