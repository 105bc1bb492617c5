"""A machine of QEMU with Debian's kernel and busybox in memory, whose shell is driven over a serial line."""

import json
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tools.harness.process import Process

# The machine that QEMU runs on, as its user network shows it to the guest.
HOST_IN_GUEST = "10.0.2.2"
BOOT_WITHIN_S = 180
PROGRAMS = ["/usr/sbin/nvme", "/usr/sbin/nbd-client", "/sbin/mkfs.ext4", "/sbin/e2fsck"]
MODULES = [
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci",
    "drivers/net/virtio_net",
    "drivers/block/virtio_blk",
    "drivers/nvme/host/nvme-fabrics",
    "drivers/nvme/host/nvme-tcp",
    "drivers/block/nbd",
]
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mount -t tmpfs none /tmp
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/tmp
for round in 1 2 3 4; do for module in /modules/*.ko; do insmod $module 2>/dev/null; done; done
ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0
stty -F /dev/ttyS1 raw -echo
exec 0</dev/ttyS1 1>/dev/ttyS1 2>&1
echo "@@ready@@"
while IFS= read -r line; do
    eval "$line" </dev/null
    echo "@@$?@@"
done
"""


def libraries(program):
    """The shared libraries of a program, and its loader: none of one that needs none, which ldd calls an error."""
    found = subprocess.run(["ldd", program], capture_output=True, text=True)
    assert found.returncode == 0 or "not a dynamic executable" in found.stderr, found.stderr
    text = found.stdout
    return re.findall(r"(/\S+) \(0x", text)


def make_image(kernel, folder, programs, modules=(), files=None):
    """An initial file system for the unpacked kernel package in `kernel`, with these programs of the machine's, these
    modules beside those that every guest has, and files by their place."""
    tree = Path(folder) / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name in ["bin", "sbin", "proc", "sys", "dev", "tmp", "mnt", "modules", "etc/nvme", "usr/bin", "usr/sbin"]:
        (tree / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), tree / "bin/busybox")
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    (builtin,) = Path(kernel).glob("lib/modules/*/modules.builtin")
    inside = builtin.read_text().splitlines()
    for module in [*MODULES, *modules]:
        if f"kernel/{module}.ko" in inside:
            continue
        found = next(Path(kernel).glob(f"lib/modules/*/kernel/{module}.ko*"))
        target = tree / "modules" / found.name.split(".ko")[0]
        if found.suffix == ".xz":
            target.with_suffix(".ko").write_bytes(subprocess.check_output(["xz", "-dc", found]))
        else:
            shutil.copy(found, target.with_suffix(".ko"))
    for program, place in programs.items():
        for path in [program, *libraries(program)]:
            target = tree / (place if path == program else path).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    for place, content in (files or {}).items():
        target = tree / place.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    # The names that a host has for good (nvme-cli's package makes them at its installation).
    (tree / "etc/nvme/hostnqn").write_text("nqn.2014-08.org.nvmexpress:uuid:5b0a2a3f-8e3e-4d63-9f9a-0d3c2a1b4c5d\n")
    (tree / "etc/nvme/hostid").write_text("5b0a2a3f-8e3e-4d63-9f9a-0d3c2a1b4c5d\n")
    image = Path(folder) / "initramfs.gz"
    command = f"cd {tree} && find . | cpio --quiet -o -H newc | gzip -1 > {image}"
    subprocess.run(["bash", "-c", command], check=True)
    return next(Path(kernel).glob("boot/vmlinuz-*")), image


def emulator(kernel):
    """QEMU: the one that lies beside the kernel, where that needs another one than this machine's."""
    own = Path(kernel) / "usr/bin/qemu-system-x86_64"
    if not own.exists():
        return ["qemu-system-x86_64"]
    shares = [f"{place}/usr/share/{what}" for place in (kernel, "") for what in ("qemu", "seabios")]
    return [own, *[word for share in shares for word in ("-L", share)]]


class Guest:
    """The machine. Without KVM, which not every machine has that runs tests."""

    def __init__(self, kernel, folder, options=(), programs=None, modules=(), files=None, waits=False):
        """With further options of QEMU, and further programs of this machine, each with its place in the guest; further
        modules of the kernel, and files, by their place. Its memory is a memfd that other processes may have. One that
        `waits` does not boot: another one of the same shape is to move here (`incoming`)."""
        self.folder = folder = Path(folder)
        self.incoming = f"unix:{folder}/incoming"
        more = {str(path): place for path, place in (programs or {}).items()}
        programs = {path: path for path in PROGRAMS} | more
        vmlinuz, image = make_image(kernel, folder, programs, modules, files)
        line = folder / "line"
        command = [
            *emulator(kernel),
            *["-nodefaults", "-display", "none", "-m", "768", "-smp", "2", "-no-reboot"],
            *["-object", "memory-backend-memfd,id=memory,size=768M,share=on", "-machine", "memory-backend=memory"],
            *["-accel", "tcg", "-cpu", "max", "-kernel", vmlinuz, "-initrd", image],
            *["-append", "console=ttyS0 panic=-1 loglevel=6 nvme_core.multipath=Y"],
            *["-serial", f"file:{folder}/console", "-serial", f"unix:{line},server=on,wait=off"],
            *["-qmp", f"unix:{folder}/qmp,server=on,wait=off"],
            *["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"],
            *options,
            *(["-incoming", self.incoming] if waits else []),
        ]
        self.console = folder / "console"
        self.process = Process(command, folder / "qemu.log")
        self.line = self.connect(line)
        self.monitor = self.connect(folder / "qmp").makefile("rw")
        self.monitor.readline()
        self.qmp("qmp_capabilities")
        self.unread = ""
        if not waits:
            self.read_until(r"@@ready@@", BOOT_WITHIN_S)

    def connect(self, path):
        """QEMU's end of a socket, once it is there."""
        deadline = time.monotonic() + 10
        while True:
            end = socket.socket(socket.AF_UNIX)
            try:
                end.connect(str(path))
                return end
            except OSError:
                end.close()
                assert time.monotonic() < deadline and self.process.alive, self.process.log_tail(20)
                time.sleep(0.1)

    def qmp(self, command, **arguments):
        """What QEMU answers to a command of its machine protocol."""
        words = {name.replace("_", "-"): value for name, value in arguments.items()}
        self.monitor.write(json.dumps({"execute": command, "arguments": words}) + "\n")
        self.monitor.flush()
        while True:
            line = self.monitor.readline()
            assert line, f"QEMU has ended: {self.process.log_tail(20)}"
            answer = json.loads(line)
            assert "error" not in answer, f"{command}: {answer['error']}"
            if "return" in answer:
                return answer["return"]

    def move(self, target):
        """Begins to move to a machine that waits."""
        for machine in (self, target):
            machine.qmp("migrate-set-capabilities", capabilities=[{"capability": "return-path", "state": True}])
        self.qmp("migrate-set-parameters", max_bandwidth=2**33, downtime_limit=2000)
        self.qmp("migrate", uri=target.incoming)

    def moved(self, within_s):
        """How a move has ended: "completed", "failed" or "cancelled"."""
        deadline = time.monotonic() + within_s
        while True:
            status = self.qmp("query-migrate").get("status")
            if status in ("completed", "failed", "cancelled"):
                return status
            assert time.monotonic() < deadline, f"not moved in {within_s} s: {status}"
            time.sleep(0.2)

    def read_until(self, pattern, within_s):
        """What comes before `pattern`, and the match."""
        deadline = time.monotonic() + within_s
        while not (found := re.search(pattern, self.unread)):
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern} in {within_s} s, but {self.unread!r}; console: {self.console_tail()}"
            self.line.settimeout(left)
            try:
                data = self.line.recv(65536)
            except TimeoutError:
                continue
            assert data, f"the guest has ended: {self.console_tail()}"
            self.unread += data.decode(errors="replace")
        before, self.unread = self.unread[: found.start()], self.unread[found.end() :]
        return before, found

    def console_tail(self, lines=30):
        return "\n".join(self.console.read_text(errors="replace").splitlines()[-lines:])

    def run(self, command, within_s=60, fails=False):
        """What a command of the guest's shell prints."""
        self.line.sendall(command.encode() + b"\n")
        text, found = self.read_until(r"@@(\d+)@@\r?\n", within_s)
        text = text.strip()
        assert (found[1] != "0") == fails, f"{command}: exit code {found[1]}, {text}; console: {self.console_tail()}"
        return text

    def stop(self):
        self.line.close()
        self.monitor.close()
        self.process.kill()
