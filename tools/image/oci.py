"""Layers and images in the format of the Open Container Initiative, whose bytes depend on what is in them alone."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _text(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Layer:
    """Files for an image; what is put in first comes first."""

    def __init__(self):
        self._bytes = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._bytes, mode="w", format=tarfile.GNU_FORMAT)
        self._folders = set()

    def _entry(self, path, mode):
        entry = tarfile.TarInfo(str(path).lstrip("/"))
        entry.mode = mode
        return entry

    def folder(self, path, mode=0o755):
        path = Path(path)
        if path == Path("/") or path in self._folders:
            return
        self.folder(path.parent)
        self._folders.add(path)
        entry = self._entry(path, mode)
        entry.type = tarfile.DIRTYPE
        self._tar.addfile(entry)

    def link(self, path, target):
        self.folder(Path(path).parent)
        entry = self._entry(path, 0o777)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        self._tar.addfile(entry)

    def file(self, path, data, mode=0o644):
        self.folder(Path(path).parent)
        entry = self._entry(path, mode)
        entry.size = len(data)
        self._tar.addfile(entry, io.BytesIO(data))

    def plain(self):
        """The end: the files as they are."""
        self._tar.close()
        return self._bytes.getvalue()

    def close(self):
        """The layer as (digest of what is unpacked, compressed bytes, size unpacked)."""
        plain = self.plain()
        return digest(plain), gzip.compress(plain, compresslevel=6, mtime=0), len(plain)


class Image:
    """An image of layers that are closed."""

    def __init__(self, machine, layers, entrypoint, labels):
        self.blobs = {}
        diffs = [diff for diff, _, _ in layers]
        config = {
            "architecture": MACHINES.get(machine, machine),
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {
                "Entrypoint": entrypoint,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": diffs},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self._blob(_text(config), CONFIG),
            "layers": [self._blob(data, LAYER) for _, data, _ in layers],
            "annotations": labels,
        }
        self.manifest = self._blob(_text(manifest), MANIFEST)
        self.digest = self.manifest["digest"]
        self.packed_bytes = sum(len(data) for _, data, _ in layers)
        self.unpacked_bytes = sum(size for _, _, size in layers)

    def _blob(self, data, media_type):
        name = digest(data)
        self.blobs[name] = data
        return {"mediaType": media_type, "digest": name, "size": len(data)}

    def write(self, path, name):
        """A layout in a tar file, which containerd, podman and skopeo read."""
        tag = name.rsplit(":", 1)[1]
        names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**self.manifest, "annotations": names}]}
        out = Layer()
        out.file("/oci-layout", _text({"imageLayoutVersion": "1.0.0"}))
        out.file("/index.json", _text(index))
        for blob, data in sorted(self.blobs.items()):
            out.file(f"/blobs/{blob.replace(':', '/')}", data)
        path.write_bytes(out.plain())
