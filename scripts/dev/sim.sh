# shellcheck shell=bash
# The simulator: whole clusters from one seed, with faults (docs/decisions/0005-simulator.md).

help_sim() {
    cat <<'TEXT'
usage: ./dev sim [--seeds N] [--minutes M] [--mode MODE] [--first SEED] [--threads N] [--keep-going] [--lie LIE] [--trace]
                 [--ack RULE] [--shards N] [--devices-fail] [--writes-lost] [--rekeys]
       ./dev sim --record [--minutes M]

Runs simulated clusters with seeds that nobody knows, on all processors, and stops at the first that breaks an invariant
with the command that runs it again.
  --seeds N      seeds to run (default: as many as fit into the minutes)
  --minutes M    stop after so many minutes (default: 5)
  --mode MODE    calm, connections, crash, flips, partitions, stalls, hangs, attachments, snapshots, devices, keys,
                 slow, fsx or all (default: all); fsx: everything that there is to do with volumes, one operation at a time,
                 against a model
  --ack RULE     all, majority or each-site (default: each seed has its own)
  --shards N     shards of each node's process, or draw: up to 4, as the seed has it (default: draw; with --first: 1)
  --devices-fail devices are wiped, refuse, lie, are drained and replaced, in whatever mode (in devices and all, they are)
  --writes-lost  the same, and disks call single writes done that they lose, in the midst of others that they keep
  --rekeys       volumes are encrypted, and their data key is rotated all the time
  --first SEED   start with this seed instead of a fresh one
  --keep-going   count violations instead of stopping
  --trace        print every step; for one seed
  --record       run all modes one after the other, and write what was run into docs/reliability.md
TEXT
}

command_sim() {
    local arguments=() seeds=1000000000 minutes=5 first=--fresh record=no threads
    threads=$(nproc)
    while (($# > 0)); do
        case $1 in
            --seeds) need_value "$1" $# && seeds=$2 && shift ;;
            --minutes) need_value "$1" $# && minutes=$2 && shift ;;
            --first) need_value "$1" $# && first=--first=$2 && shift ;;
            --threads) need_value "$1" $# && threads=$2 && shift ;;
            --mode | --ack | --shards | --lie | --operations) need_value "$1" $# && arguments+=("$1" "$2") && shift ;;
            --record) record=yes ;;
            --keep-going | --trace | --devices-fail | --writes-lost | --rekeys) arguments+=("$1") ;;
            *) die "sim does not know '$1' (./dev sim --help)" ;;
        esac
        shift
    done
    ensure_tools "${BUILD_TOOLS[@]}"
    ensure_rust
    cd "$ROOT" || die "cannot enter $ROOT"
    if [[ $record == yes ]]; then
        cargo build --release --quiet -p azekura-sim || die "the simulator could not be built (messages above)"
        ensure_python "${TEST_MODULES[@]}"
        exec "$PYTHON" -m tools.torment.simulated \
            --binary "${CARGO_TARGET_DIR:-$ROOT/target}/release/azekura-sim" --minutes "$minutes" --threads "$threads"
    fi
    exec cargo run --release --quiet -p azekura-sim -- \
        "$first" --seeds "$seeds" --minutes "$minutes" --threads "$threads" "${arguments[@]}"
}
