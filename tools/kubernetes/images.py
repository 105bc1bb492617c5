"""Images of what the cluster needs besides Azekura's: sidecars, etcd, and something for pods to run."""

import subprocess
from pathlib import Path

import yaml

from tools.image import files as machine
from tools.image.oci import Image, Layer

from .place import BUILT, IMAGES, PROGRAMS, ROOT

BUSYBOX = Path("/bin/busybox")
PAUSE = "localhost/pause:1"
POD = "localhost/pod:1"
# The operator wants a version to know which flags there are.
PROMETHEUS, PROMETHEUS_VERSION = "localhost/prometheus:1", "v3.5.1"
RELOADER = "localhost/prometheus-config-reloader:1"
OPERATOR = (
    f"--prometheus-config-reloader={RELOADER}",
    "--config-reloader-cpu-request=0",
    "--config-reloader-memory-request=0",
)
CHANGED_BLOCKS = "localhost/changed-blocks:1"
# The suite's images, by what their names end with before the tag: of all but agnhost its tests of storage ask for a
# shell and the usual programs; agnhost is built with the suite, and jessie-dnsutils has the machine's dd, which knows
# oflag=nocache, and its shell, for busybox's takes its own dd wherever another one is.
SUITE_IMAGES = ("agnhost", "busybox", "jessie-dnsutils", "nginx")


def chart_images():
    """Names of the images that the chart's values name: sidecars by program, and etcd."""
    values = yaml.safe_load((ROOT / "charts/azekura/values.yaml").read_text())
    own_names = {"registrar": "registrar", "snapshotMetadata": "csi-snapshot-metadata"}
    names = {own_names.get(name, f"csi-{name}"): image for name, image in values["csi"]["images"].items()}
    return {**names, "etcd": values["etcd"]["image"]}


def of_program(program, at):
    layer = Layer()
    layer.folder("/tmp", 0o1777)
    layer.file(at, (PROGRAMS / program).read_bytes(), 0o755)
    return layer


def pod_layer(agnhost=False, machines_dd=False):
    layer = Layer()
    for name in ("bin", "data", "dev", "etc", "mnt", "opt", "proc", "sys", "usr", "usr/bin", "var"):
        layer.folder(f"/{name}")
    layer.folder("/tmp", 0o1777)
    layer.file("/bin/busybox", BUSYBOX.read_bytes(), 0o755)
    for name in subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox" and not (machines_dd and name == "sh"):
            layer.link(f"/bin/{name}", "busybox")
    layer.link("/usr/bin/env", "/bin/busybox")
    layer.file("/etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
    layer.file("/etc/group", b"root:x:0:\n")
    if agnhost:
        layer.file("/agnhost", (PROGRAMS / "agnhost").read_bytes(), 0o755)
    if machines_dd:
        for name in ("lib", "lib64"):
            layer.link(f"/{name}", f"usr/{name}")
        layer.link("/bin/sh", "/usr/bin/dash")
        for path, target, source in machine.closure([machine.program("dd"), machine.program("dash")]):
            if target is not None:
                layer.link(path, target)
            else:
                layer.file(path, source.read_bytes(), 0o755)
    return layer.close()


def write(name, layer, entrypoint=None):
    file = BUILT / "images" / (name.replace("/", "_").replace(":", "_") + ".tar")
    file.parent.mkdir(parents=True, exist_ok=True)
    Image("x86_64", [layer], entrypoint, {}).write(file, name)
    return file


def suite_images(pod):
    listed = subprocess.run([PROGRAMS / "suite.test", "-list-images"], capture_output=True, text=True).stdout.split()
    names = [name for name in listed if name.split("/")[-1].split(":")[0] in SUITE_IMAGES]
    others = {"agnhost": pod_layer(agnhost=True), "jessie-dnsutils": pod_layer(machines_dd=True)}

    def of(name):
        kind = name.split("/")[-1].split(":")[0]
        return write(name, others.get(kind, pod), ["/agnhost"] if kind == "agnhost" else None)

    return [of(name) for name in names]


def make(suite):
    """All images as files. Those of Azekura are ./dev image's."""
    files = [IMAGES / "azekura.tar", IMAGES / "azekura-csi.tar"]
    for program, name in chart_images().items():
        if program == "etcd":
            files.append(write(name, of_program("cluster", "/usr/bin/etcd").close(), ["/usr/bin/etcd"]))
        elif (PROGRAMS / program).exists():
            files.append(write(name, of_program(program, f"/{program}").close(), [f"/{program}"]))
    files.append(write(PAUSE, of_program("pause", "/pause").close(), ["/pause"]))
    asked = {"prometheus": PROMETHEUS, "prometheus-config-reloader": RELOADER, "changed-blocks": CHANGED_BLOCKS}
    for program, name in asked.items():
        files.append(write(name, of_program(program, f"/bin/{program}").close(), [f"/bin/{program}"]))
    pod = pod_layer()
    files.append(write(POD, pod))
    return files + (suite_images(pod) if suite else [])
