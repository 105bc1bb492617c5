"""Makes the images; see ./dev image --help."""

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .files import BASE_TOOLS, NODE_DATA, NODE_TOOLS, Missing, closure, owners, package_records, program
from .oci import Image, Layer

USERS = b"root:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
GROUPS = b"root:x:0:\ndisk:x:6:\nnogroup:x:65534:\n"
# Debian has had these as links since its release 12.
MERGED = ("bin", "sbin", "lib", "lib64")


def stripped(binary):
    """The program without the lines of its source, which are three quarters of it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "azekura"
        subprocess.run(["strip", "--strip-debug", "-o", out, binary], check=True)
        return out.read_bytes()


def put(layer, entries):
    for path, target, source in entries:
        if target is not None:
            layer.link(path, target)
        else:
            layer.file(path, source.read_bytes(), 0o755 if source.stat().st_mode & 0o111 else 0o644)


def base_layer(binary):
    layer = Layer()
    for name in ("dev", "etc", "proc", "run", "sys", "usr", "usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "var"):
        layer.folder(f"/{name}")
    layer.folder("/tmp", 0o1777)
    for name in MERGED:
        layer.link(f"/{name}", f"usr/{name}")
    layer.file("/etc/passwd", USERS)
    layer.file("/etc/group", GROUPS)
    tools = [program(name) for name, _ in BASE_TOOLS]
    entries = [entry for entry in closure([binary, *tools]) if entry[0] != binary.resolve()]
    put(layer, entries)
    for path, data in package_records(owners(entries)):
        layer.file(path, data)
    return layer.close(), entries


def tools_layer(base):
    known = {path for path, _, _ in base}
    entries = closure([program(name) for name, _ in NODE_TOOLS], NODE_DATA)
    entries = [entry for entry in entries if entry[0] not in known]
    layer = Layer()
    put(layer, entries)
    layer.link("/usr/bin/sh", "dash")
    known_packages = set(owners(base))
    for path, data in package_records([name for name in owners(entries) if name not in known_packages]):
        layer.file(path, data)
    return layer.close()


def program_layer(binary):
    layer = Layer()
    layer.file("/usr/bin/azekura", stripped(binary), 0o755)
    return layer.close()


def main():
    parser = argparse.ArgumentParser(prog="./dev image")
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prefix", default="localhost")
    parser.add_argument("--tag", required=True)
    options = parser.parse_args()
    if shutil.which("strip") is None:
        raise Missing("the program strip is not on this machine (package binutils)")
    binary = options.binary.resolve()
    machine = platform.machine()
    base, base_entries = base_layer(binary)
    own = program_layer(binary)
    labels = {"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.version": options.tag}
    made = []
    for name, layers in (("azekura", [base, own]), ("azekura-csi", [base, tools_layer(base_entries), own])):
        title = {**labels, "org.opencontainers.image.title": name}
        image = Image(machine, layers, ["/usr/bin/azekura"], title)
        reference = f"{options.prefix}/{name}:{options.tag}"
        options.out.mkdir(parents=True, exist_ok=True)
        file = options.out / f"{name}.tar"
        image.write(file, reference)
        sizes = {"packed_bytes": image.packed_bytes, "unpacked_bytes": image.unpacked_bytes}
        made.append({"name": reference, "digest": image.digest, "file": str(file), **sizes})
    print(json.dumps(made, indent=2))


if __name__ == "__main__":
    try:
        main()
    except Missing as missing:
        sys.exit(f"image: {missing}")
