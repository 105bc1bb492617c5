# shellcheck shell=bash
# Clients that are kernels: tests in a virtual machine.

help_guest() {
    cat <<'TEXT'
usage: ./dev guest [-- PYTEST-ARGUMENTS...]

Debian's own kernel for clouds, busybox, nvme-cli and nbd-client in a virtual machine of QEMU, as an NVMe/TCP host of a node
on this machine: discovery, file systems with checksums, digests, discards, growing volumes, restarts (tests/guest_nvme.py);
with volumes as its disks, by vhost-user (tests/guest_vhost.py), also of a
machine that moves between nodes (tests/guest_vhost_migration.py); azekura attach with NVMe/TCP and NBD
(tests/guest_attach.py), and the CSI driver's node part with both (tests/guest_csi.py); a volume by several nodes at a
time, by NVMe/TCP (tests/guest_paths.py) and by iSCSI with
dm-multipath (tests/guest_iscsi.py); secrets that an NVMe host proves (tests/guest_authentication.py), for which Debian 12's
kernel is too old, and that of its backports is taken. Kernels are unpacked below target/guest and not installed. KVM is not
needed.
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

# ensure_newer_kernel: sets NEWER_KERNEL to a folder with the unpacked packages of the backports' kernel and QEMU: newer
# kernels do not survive how Debian 12's QEMU emulates code that changes itself. Their lists are kept apart, so that
# nothing of the machine's own packages changes.
ensure_newer_kernel() {
    NEWER_KERNEL=$ROOT/target/guest/newer
    [[ -z $(compgen -G "$NEWER_KERNEL/boot/vmlinuz-*") ]] || return 0
    have apt-get || die "the guest's kernel comes from Debian's archive with apt-get, which is not here"
    local folder=$ROOT/target/guest/backports archive codename package
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/\?$' | head -n 1)
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    [[ -n $archive ]] || die "apt knows no archive of Debian's: the guest needs its backports"
    mkdir -p "$folder/lists/partial" "$NEWER_KERNEL"
    echo "deb $archive $codename-backports main" >"$folder/sources.list"
    local apt=(-o "Dir::Etc::SourceList=$folder/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$folder/lists" -o APT::Sandbox::User=root -qq)
    apt-get "${apt[@]}" update || die "apt could not read the lists of $codename-backports"
    package=$(apt-cache "${apt[@]}" depends linux-image-cloud-amd64 2>/dev/null |
        sed -n 's/.*Depends: \(linux-image-[0-9]\)/\1/p' | head -n 1)
    [[ -n $package ]] || die "$codename-backports has no linux-image-cloud-amd64"
    step "unpacking the kernel of $package into $NEWER_KERNEL"
    for package in qemu-system-x86 qemu-system-common qemu-system-data seabios "$package"; do
        (cd "$folder" && apt-get "${apt[@]}" download "$package") || die "apt could not download $package"
        dpkg-deb -x "$folder/$package"_*.deb "$NEWER_KERNEL" || die "$package could not be unpacked"
    done
    rm -rf "$folder"
}

command_guest() {
    [[ ${1:-} != -- ]] || shift
    ensure_tools "${GUEST_TOOLS[@]}"
    ensure_kernel
    ensure_newer_kernel
    ensure_python pytest:python3-pytest
    ensure_csi_tools
    build_binary
    cd "$ROOT" || die "cannot enter $ROOT"
    AZEKURA_GUEST_KERNEL=$GUEST_KERNEL AZEKURA_NEWER_KERNEL=$NEWER_KERNEL AZEKURA_BIN=$AZEKURA PYTHONDONTWRITEBYTECODE=1 \
        exec "$PYTHON" -m pytest tests/guest_*.py "$@"
}
