# shellcheck shell=bash
# The lab: see tools/lab/ for the experiments and the targets.

help_lab() {
    cat <<'TEXT'
usage: ./dev lab run EXPERIMENT... | --all [--quick | --full | --plan FILE] [--targets A,B] [--rounds N] [--fresh]
       ./dev lab report [--quick | --full | --plan FILE] [--into FOLDER | --sample]
       ./dev lab list

Repeats published storage experiments on this machine, for Azekura and for peers that it installs from Debian's packages,
starts and stops by itself, and writes a report with published and measured figures. For example:
  ./dev lab run E3 --targets raw,qemu-nbd,azekura,ceph --quick
  ./dev lab run --all --quick; ./dev lab report
A run that is cut off goes on where it stopped when the same command is given again; --fresh begins anew; --dry-run says
how long it would take. Results are in .lab/ as JSON lines. Loop devices, network namespaces and the installing of peers
need root; what is not possible is left out and named in the report.
TEXT
}

command_lab() {
    ensure_tools "${LAB_TOOLS[@]}"
    ensure_python "${LAB_MODULES[@]}"
    case ${1:-} in
        run) build_binary ;;
        *) locate_binary ;;
    esac
    cd "$ROOT" || die "cannot enter $ROOT"
    AZEKURA_BIN=$AZEKURA PYTHONDONTWRITEBYTECODE=1 exec "$PYTHON" -m tools.lab "$@"
}
