# shellcheck shell=bash
# Clients that are kernels: tests in a virtual machine.

help_guest() {
    cat <<'TEXT'
usage: ./dev guest [-- PYTEST-ARGUMENTS...]

Debian's own kernel for clouds, busybox, nvme-cli and nbd-client in a virtual machine of QEMU, as an NVMe/TCP host of a node
on this machine: discovery, file systems with checksums, digests, discards, growing volumes, restarts (tests/guest_nvme.py);
with volumes as its disks, by vhost-user (tests/guest_vhost.py); azekura attach with NVMe/TCP and NBD
(tests/guest_attach.py); a volume by several nodes at a time, by NVMe/TCP (tests/guest_paths.py) and by iSCSI with
dm-multipath (tests/guest_iscsi.py). The kernel is unpacked below target/guest and not installed. KVM is not needed.
TEXT
}

# ensure_kernel: sets GUEST_KERNEL to a folder with the unpacked package of the current kernel.
ensure_kernel() {
    GUEST_KERNEL=$ROOT/target/guest/kernel
    [[ -z $(compgen -G "$GUEST_KERNEL/boot/vmlinuz-*") ]] || return 0
    have apt-get || die "the guest's kernel comes from Debian's archive with apt-get, which is not here"
    apt_update_once
    local package
    package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9]\)/\1/p' | head -n 1)
    [[ -n $package ]] || die "apt knows no linux-image-cloud-amd64: the guest needs Debian's archive"
    step "unpacking the kernel of $package into $GUEST_KERNEL"
    rm -rf "$ROOT/target/guest"
    mkdir -p "$GUEST_KERNEL"
    (cd "$ROOT/target/guest" && apt-get download -qq "$package") || die "apt could not download $package"
    dpkg-deb -x "$ROOT/target/guest/$package"_*.deb "$GUEST_KERNEL" || die "$package could not be unpacked"
}

command_guest() {
    [[ ${1:-} != -- ]] || shift
    ensure_tools "${GUEST_TOOLS[@]}"
    ensure_kernel
    ensure_python pytest:python3-pytest
    build_binary
    cd "$ROOT" || die "cannot enter $ROOT"
    AZEKURA_GUEST_KERNEL=$GUEST_KERNEL AZEKURA_BIN=$AZEKURA PYTHONDONTWRITEBYTECODE=1 \
        exec "$PYTHON" -m pytest tests/guest_*.py "$@"
}
