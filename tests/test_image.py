"""Images for containers: they have what their programs need, and the same input gives the same bytes."""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile

import pytest

from tools.harness.cluster import ROOT, binary
from tools.image.files import BASE_TOOLS, NODE_TOOLS, Missing, libraries, program

pytestmark = pytest.mark.skipif(
    any(shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None for name, _ in NODE_TOOLS),
    reason="not all programs of the image are here: ./dev image installs them",
)
MIB = 2**20


def make(program_file, out, *options):
    command = [sys.executable, "-m", "tools.image", "--binary", program_file, "--out", out, "--tag", "1", *options]
    return {
        made["name"].split("/")[-1].split(":")[0]: made
        for made in json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    }


class Layout:
    """An image in a tar file; each blob is compared with its name."""

    def __init__(self, file):
        self.tar = tarfile.open(file)
        [self.entry] = json.loads(self.member("index.json"))["manifests"]
        self.manifest = json.loads(self.blob(self.entry))
        self.config = json.loads(self.blob(self.manifest["config"]))

    def member(self, name):
        return self.tar.extractfile(name).read()

    def blob(self, described):
        kind, name = described["digest"].split(":")
        data = self.member(f"blobs/{kind}/{name}")
        assert len(data) == described["size"] and hashlib.sha256(data).hexdigest() == name
        return data

    def unpack(self, folder):
        for layer, plain in zip(self.manifest["layers"], self.config["rootfs"]["diff_ids"], strict=True):
            data = gzip.decompress(self.blob(layer))
            assert "sha256:" + hashlib.sha256(data).hexdigest() == plain
            layers = tarfile.open(fileobj=io.BytesIO(data))
            # Where Python has filters (3.11.4 and later), links of an image would be refused.
            layers.extraction_filter = lambda member, _path: member
            layers.extractall(folder)


@pytest.mark.long
def test_the_same_input_gives_the_same_digest(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for name, copied in ((first, "true"), (second, "true")):
        name.mkdir()
        shutil.copy(f"/bin/{copied}", name / "azekura")
    os.utime(second / "azekura", (1, 1))
    os.chmod(second / "azekura", 0o700)
    one, two = make(first / "azekura", first / "out"), make(second / "azekura", second / "out")
    for name in ("azekura", "azekura-csi"):
        assert one[name]["digest"] == two[name]["digest"]
        assert (first / f"out/{name}.tar").read_bytes() == (second / f"out/{name}.tar").read_bytes()
    shutil.copy("/bin/false", second / "azekura")
    other = make(second / "azekura", second / "out")
    assert other["azekura"]["digest"] != one["azekura"]["digest"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image")
    return folder, make(binary(), folder, "--prefix", "registry.example/x")


def test_an_image_says_what_it_is(made):
    folder, images = made
    layout = Layout(folder / "azekura.tar")
    assert layout.entry["annotations"]["io.containerd.image.name"] == "registry.example/x/azekura:1"
    assert layout.entry["digest"] == images["azekura"]["digest"]
    assert layout.config["config"]["Entrypoint"] == ["/usr/bin/azekura"]
    both = [Layout(folder / f"{name}.tar").manifest["layers"] for name in images]
    shared = {layer["digest"] for layer in both[0]} & {layer["digest"] for layer in both[1]}
    assert len(shared) == 2, "a machine that has both stores the program and its libraries once"


@pytest.mark.skipif("debug" in str(binary()), reason="a debug build is larger")
def test_the_images_are_small(made):
    assert made[1]["azekura"]["unpacked_bytes"] <= 60 * MIB
    assert made[1]["azekura-csi"]["unpacked_bytes"] <= 140 * MIB


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
@pytest.mark.parametrize("name", ["azekura", "azekura-csi"])
def test_every_program_finds_its_libraries_in_the_image(made, tmp_path, name):
    Layout(made[0] / f"{name}.tar").unpack(tmp_path)
    loader = subprocess.run(["find", "/lib64/", "-name", "ld-linux*"], capture_output=True, text=True).stdout.split()[0]

    def lacks(path):
        command = ["chroot", tmp_path, loader, "--list", path]
        told = subprocess.run(command, capture_output=True, text=True)
        return told.returncode != 0 or "not found" in told.stdout

    tools = NODE_TOOLS if name == "azekura-csi" else BASE_TOOLS
    names = ["azekura", *(tool for tool, _ in tools)]
    places = ["usr/bin", "usr/sbin"]
    for tool in names:
        found = [f"/{place}/{tool}" for place in places if (tmp_path / place / tool).exists()]
        assert found, f"{tool} is not in {name}"
        assert not lacks(found[0]), f"{tool} lacks libraries in {name}"
    said = subprocess.run(["chroot", tmp_path, "/usr/bin/azekura", "version"], capture_output=True, text=True)
    assert said.stdout.startswith("azekura "), said
    assert (tmp_path / "usr/bin/sh").exists() == (name == "azekura-csi"), "nodes have no shell"


def test_a_program_that_is_missing_is_named():
    with pytest.raises(Missing, match="no-such-program"):
        program("no-such-program")
    assert libraries(program("mount"))
