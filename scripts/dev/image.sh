# shellcheck shell=bash
# Images for containers: see tools/image/.

help_image() {
    cat <<'TEXT'
usage: ./dev image [--prefix REGISTRY/PATH] [--tag TAG]

Makes two images for containers from the release binary and from programs of this machine, without a daemon and without a
registry: target/image/azekura.tar (nodes, the CSI controller) and target/image/azekura-csi.tar (the same, with what the
CSI node part runs: mount, mkfs, qemu-storage-daemon, nvme and others). Prints their names, digests and sizes as JSON. The
same programs give the same digest.
  --prefix ...  what the images' names begin with (default: localhost)
  --tag TAG     their tag (default: the version in Cargo.toml)

    ctr -n k8s.io images import target/image/azekura.tar
    skopeo copy oci-archive:target/image/azekura.tar docker://registry.example/azekura:1
TEXT
}

IMAGE_DIR=$ROOT/target/image

project_version() { sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1; }

command_image() {
    local prefix=localhost tag
    tag=$(project_version)
    while (($# > 0)); do
        case $1 in
            --prefix) need_value "$1" $# && prefix=$2 && shift ;;
            --tag) need_value "$1" $# && tag=$2 && shift ;;
            *) die "image does not know '$1' (./dev image --help)" ;;
        esac
        shift
    done
    ensure_tools "${IMAGE_TOOLS[@]}"
    build_binary
    cd "$ROOT" || die "cannot enter $ROOT"
    python3 -m tools.image --binary "$AZEKURA" --out "$IMAGE_DIR" --prefix "$prefix" --tag "$tag" ||
        die "the images could not be made (the reason is above)"
}
