"""What goes into an image: programs of this machine, and all that they need to run."""

import subprocess
from pathlib import Path

# What tells a node what is on a disk that it does not take.
BASE_TOOLS = (("blkid", "util-linux"),)
# Debian's programs that the CSI node part runs; the driver's documentation says for what.
NODE_TOOLS = (
    ("mount", "mount"),
    ("umount", "mount"),
    ("blkid", "util-linux"),
    ("blockdev", "util-linux"),
    ("losetup", "mount"),
    ("setsid", "util-linux"),
    ("mke2fs", "e2fsprogs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("resize2fs", "e2fsprogs"),
    ("dumpe2fs", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("xfs_growfs", "xfsprogs"),
    ("xfs_repair", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("btrfs", "btrfs-progs"),
    ("fusermount3", "fuse3"),
    ("qemu-storage-daemon", "qemu-system-common"),
    ("nbdfuse", "nbdfuse"),
    ("nbd-client", "nbd-client"),
    ("nvme", "nvme-cli"),
    # The driver starts nbdfuse with a line for a shell.
    ("dash", "dash"),
)
NODE_DATA = ("/etc/mke2fs.conf",)
SEARCHED = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Missing(Exception):
    """Something that belongs into the image is not on this machine."""


def program(name):
    """Where a program of the machine is."""
    for folder in SEARCHED:
        path = Path(folder) / name
        if path.exists():
            return path
    raise Missing(f"the program {name} is not on this machine")


def libraries(path):
    """The shared libraries that a program asks the loader for, and the loader."""
    told = subprocess.run(["ldd", path], capture_output=True, text=True, env={"LC_ALL": "C"})
    if "not a dynamic executable" in told.stdout + told.stderr or "statically linked" in told.stdout:
        return []
    if told.returncode != 0 or "not found" in told.stdout:
        raise Missing(f"{path} lacks libraries: {told.stdout}{told.stderr}")
    words = [line.split() for line in told.stdout.splitlines()]
    found = [line[2] if "=>" in line else line[0] for line in words]
    return [Path(name) for name in found if name.startswith("/")]


def with_links(path):
    """A file as (path in the image, link to or None, source): where it really is, and the links that lead there."""
    entries = []
    path = path.parent.resolve() / path.name
    while path.is_symlink():
        target = path.parent / path.readlink()
        entries.append((path, str(path.readlink()), None))
        path = target.parent.resolve() / target.name
    return [*entries, (path, None, path)]


def closure(programs, data=()):
    """All entries for these programs and data files, each once, in the order of their paths."""
    wanted = [*programs, *map(Path, data)]
    for each in programs:
        wanted += libraries(each)
    return sorted({entry for path in wanted for entry in with_links(path)}, key=lambda entry: str(entry[0]))


def owners(entries):
    """The Debian packages of the entries; none where there is no dpkg."""
    found = {}
    for path, _, source in entries:
        if source is None:
            continue
        # dpkg knows some files by the names that they had before /bin and /lib became links.
        for name in (str(path), str(path).removeprefix("/usr")):
            try:
                told = subprocess.run(["dpkg-query", "--search", name], capture_output=True, text=True)
            except FileNotFoundError:
                return []
            if told.returncode == 0:
                package = told.stdout.split(": ")[0]
                found[package] = package
                break
    return sorted(found)


def package_records(packages):
    """What scanners look for, and the licences, as (path in the image, bytes)."""
    records = []
    for package in packages:
        status = subprocess.run(["dpkg-query", "--status", package], capture_output=True, check=True).stdout
        name = package.split(":")[0]
        records.append((Path(f"/var/lib/dpkg/status.d/{name}"), status))
        copyright_file = Path(f"/usr/share/doc/{name}/copyright")
        if copyright_file.exists():
            records.append((copyright_file, copyright_file.read_bytes()))
    return records
