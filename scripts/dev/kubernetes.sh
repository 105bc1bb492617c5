# shellcheck shell=bash
# A real Kubernetes on this machine: see tools/kubernetes/.

help_kubernetes() {
    cat <<'TEXT'
usage: ./dev kubernetes up [--suite] [--machines N]
                                              build what is missing, start the cluster, import the images; N: 1 (default) to 8
       ./dev kubernetes test [-- PYTEST...]   install the chart there, and tests/kubernetes_chart.py and _options.py, or with
                                              more than one machine tests/kubernetes_machines.py
       ./dev kubernetes suite [--slow] [GINKGO...]
                                              Kubernetes' own tests of storage, of the chart's driver (after up --suite and test);
                                              with --slow those that it calls slow instead
       ./dev kubernetes in COMMAND...         run a command inside: ./dev kubernetes in kubectl get pods -A
       ./dev kubernetes on NODE COMMAND...    the same in a machine's namespaces: ./dev kubernetes on node2 ctr -n k8s.io c ls
       ./dev kubernetes machine kill|start|cut|heal NODE
                                              its power fails, comes again; its network is away, is back
       ./dev kubernetes down [--all]          end it; with --all, delete what was built as well

etcd, API server, controllers, scheduler and kubelet of Kubernetes 1.35, built from Go modules, Debian's containerd, and the CSI
project's sidecars, in namespaces of their own for mounts, processes, network and control groups, and each of the cluster's
machines in such of its own: this machine's network and settings stay as they are. Needs root. The first build takes ten
minutes or more, and 15 GB below target/kubernetes. The machines share this machine's kernel.
TEXT
}

KUBERNETES_TOOLS=(containerd:containerd runc:runc busybox:busybox-static openssl:openssl ip:iproute2 nsenter:util-linux
    unshare:util-linux iptables:iptables ipset:ipset)
KUBERNETES_BUILT=$ROOT/target/kubernetes
KUBERNETES_VERSION=1.35.4

kubernetes_go() {
    (cd "$ROOT/tools/kubernetes/$1" && shift && CGO_ENABLED=0 GOCACHE=$KUBERNETES_BUILT/cache GOMODCACHE=$KUBERNETES_BUILT/mod \
        GOFLAGS="-mod=readonly -buildvcs=false -modcacherw" go "$@") || die "go could not build what the cluster needs (its messages are above)"
}

# kubernetes_module WHERE MODULE: the folder of a module that one of ours uses.
kubernetes_module() {
    (cd "$ROOT/tools/kubernetes/$1" && GOMODCACHE=$KUBERNETES_BUILT/mod go list -m -f '{{.Dir}}' "$2")
}

# kubernetes_build [suite]: what is missing, or older than what it is made of.
kubernetes_build() {
    local bin=$KUBERNETES_BUILT/bin version=k8s.io/component-base/version stamp
    local flags="-s -w -X $version.gitVersion=v$KUBERNETES_VERSION -X $version.gitMajor=1 -X $version.gitMinor=35"
    mkdir -p "$bin"
    ensure_go
    stamp=$bin/.built
    if [[ ! -e $stamp || -n $(find "$ROOT"/tools/kubernetes/*/ -type f -newer "$stamp" -print -quit) ]]; then
        step "building Kubernetes $KUBERNETES_VERSION and the CSI sidecars (a quarter of an hour the first time)"
        kubernetes_go cluster build -trimpath -ldflags "$flags" -o "$bin/cluster" .
        kubernetes_go cluster build -trimpath -ldflags "-s -w" -o "$bin/" ./names ./pause ./registrar
        kubernetes_go sidecars build -trimpath -ldflags "-s -w" -o "$bin/" tool
        local module
        for module in provisioner firewall monitoring prometheus; do
            kubernetes_go "$module" build -trimpath -ldflags "-s -w" -o "$bin/" tool
        done
        kubernetes_go changes build -trimpath -ldflags "-s -w" -o "$bin/" tool ./changed-blocks
        touch "$stamp"
    fi
    if [[ ${1:-} == suite && (! -e $bin/suite.test || $bin/cluster -nt $bin/suite.test) ]]; then
        step "building Kubernetes' tests of storage"
        kubernetes_go cluster build -trimpath -ldflags "-s -w" -o "$bin/" tool
        kubernetes_go cluster test -vet=off -c -trimpath -ldflags "$flags" -o "$bin/suite.test" ./suite
    fi
}

kubernetes_program() {
    cd "$ROOT" || die "cannot enter $ROOT"
    PYTHONDONTWRITEBYTECODE=1 "$PYTHON" -m tools.kubernetes "$@"
}

kubernetes_up() {
    local suite=() machines=1
    while (($# > 0)); do
        case $1 in
            --suite) suite=(--suite) ;;
            --machines)
                machines=${2:-}
                [[ $machines =~ ^[1-8]$ ]] || die "kubernetes up --machines takes a number from 1 to 8, not '$machines'"
                shift
                ;;
            *) die "kubernetes up does not know '$1' (./dev kubernetes --help)" ;;
        esac
        shift
    done
    ensure_tools "${KUBERNETES_TOOLS[@]}"
    [[ -x /usr/lib/cni/ptp ]] || ensure_packages containernetworking-plugins
    kubernetes_build "${suite[@]#--}"
    ensure_helm
    command_image >/dev/null
    step "starting the cluster"
    local crds
    crds=$(kubernetes_module sidecars github.com/kubernetes-csi/external-snapshotter/client/v8)/config/crd
    crds+=:$(kubernetes_module changes github.com/kubernetes-csi/external-snapshot-metadata/client)/config/crd
    crds+=:$(kubernetes_module monitoring github.com/prometheus-operator/prometheus-operator)/example/prometheus-operator-crd
    AZEKURA_CRDS=$crds kubernetes_program up "${suite[@]}" --machines "$machines"
    say "the cluster is up: ./dev kubernetes in kubectl get pods -A"
}

kubernetes_suite() {
    # A populator's image, which data from "any" source needs, can't be made from what is here.
    local focus=External.Storage skip="ntfs|Disruptive|Feature:Windows|Inline-volume|Pre-provisioned PV|any volume data source" result=0
    local suite=(kubernetes_program in "$KUBERNETES_BUILT/bin/suite.test" "-kubeconfig=$DEV_DIR/kubernetes/keys/admin.conf"
        -ginkgo.v -ginkgo.no-color -ginkgo.timeout=3h)
    if [[ ${1:-} == --slow ]]; then
        shift
        focus='External.Storage.*\[Slow\]'
        "${suite[@]}" "-storage.testdriver=$ROOT/tools/kubernetes/driver-immediate.yaml" \
            "-ginkgo.focus=volume-modify-stress" "$@" || result=1
    else
        skip+="|Slow"
        "${suite[@]}" "-storage.testdriver=$ROOT/tools/kubernetes/driver-small.yaml" \
            "-ginkgo.focus=volumegroupsnapshottable" "$@" || result=1
        "${suite[@]}" "-storage.testdriver=$ROOT/tools/kubernetes/driver-shared.yaml" \
            "-ginkgo.focus=block volmode.*different node" "$@" || result=1
    fi
    "${suite[@]}" "-storage.testdriver=$ROOT/tools/kubernetes/driver.yaml" "-ginkgo.focus=$focus" "-ginkgo.skip=$skip" "$@" || result=1
    return $result
}

command_kubernetes() {
    local part=${1:-help}
    (($# == 0)) || shift
    [[ $part == help || $(id -u) == 0 ]] || die "kubernetes needs root"
    [[ $part == help ]] || ensure_python pytest:python3-pytest yaml:python3-yaml
    case $part in
        help) help_kubernetes ;;
        up) kubernetes_up "$@" ;;
        test)
            [[ ${1:-} != -- ]] || shift
            cd "$ROOT" || die "cannot enter $ROOT"
            local tests=(tests/kubernetes_chart.py tests/kubernetes_options.py)
            [[ $(cat "$DEV_DIR/kubernetes/count" 2>/dev/null || echo 1) == 1 ]] || tests=(tests/kubernetes_machines.py)
            PYTHONDONTWRITEBYTECODE=1 exec "$PYTHON" -m pytest -x -s "${tests[@]}" "$@"
            ;;
        suite) kubernetes_suite "$@" ;;
        in | on | machine) kubernetes_program "$part" "$@" ;;
        down)
            kubernetes_program down
            [[ ${1:-} != --all ]] || rm -rf "$KUBERNETES_BUILT" "$DEV_DIR/kubernetes"
            ;;
        *) die "kubernetes has no '$part' (./dev kubernetes --help)" ;;
    esac
}
