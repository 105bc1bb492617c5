# shellcheck shell=bash
# The benchmark: see tools/bench/ for what it measures and how.

help_bench() {
    cat <<'TEXT'
usage: ./dev bench [--secs N] [--size 2G] [--targets azekura,qemu-nbd[,raw]] [--only REGEX]
                   [--transport plain|both|tls] [--before BINARY] [--rounds N] [--clusters N] [--json FILE] [--record]
       ./dev bench sustained [--minutes 10] [--json FILE] [--record]
       ./dev bench idle [--json FILE] [--record]
       ./dev bench snapshots [--snapshots 1000] [--secs N] [--rounds N] [--size 1G] [--json FILE] [--record]
       ./dev bench stuck [--secs N] [--rounds N] [--json FILE] [--record]
       ./dev bench large [--minutes 10] [--secs N] [--rounds N] [--only REGEX] [--before BINARY] [--device-size 12GiB]
                   [--memory SIZE] [--json FILE] [--record]
       ./dev bench shards [--secs N] [--rounds N] [--size 2G] [--json FILE] [--record]
       ./dev bench secure [--secs N] [--rounds N] [--size 2G] [--json FILE] [--record]
       ./dev bench home [--secs N] [--rounds N] [--size 2G] [--json FILE] [--record]
       ./dev bench doors [--secs N] [--rounds N] [--size 2G] [--only REGEX] [--attached] [--json FILE] [--record]

The first form runs nine fio tests on a volume with two copies of a fresh three-node cluster (its own folder, not
./dev up's) and, turn by turn, the same tests on qemu-nbd over a raw file without copies. It prints IOPS or MiB/s,
latency, server CPU a request, memory, and the ratio to qemu-nbd. With --before it also runs another build's binary, turn by
turn, and prints the ratios to it; --clusters does all of that so often with clusters made anew, for a
cluster's luck lasts as long as the cluster. --transport says how the nodes talk with each other (plain, unless said; every form but
`large` has it). --record writes the figures into docs/performance.md.
`sustained` writes at random for minutes over a volume that fills 70 % of its devices and shows the rate every
10 seconds; `idle` shows what a node uses when nobody asks anything of it. `snapshots` reads and writes a volume with a thousand
snapshots and one with none turn by turn, and writes to a volume with and without protection every ten seconds. `stuck`
writes to a volume while another one of the same node waits for a node that is away, and while it does not. `large`
compares volumes whose map is large with small ones: random writes to 6 GiB spread over 200 GiB, what the map costs a
write, memory, dense data that is more than the map's cache holds, the restart of a killed node, large reads of what was
written at random. --only chooses among its figures by name: rate, p99, afterwards, map_bytes, restart, dense,
sequential. It needs 55 GiB of disk. `shards` compares machines of four devices that have one, two and four shards, and of four
processes, at full load and at half of what one shard gives; it needs 48 GiB of disk. `secure` compares clusters with TLS
between their nodes, and with an encrypted volume, with one that has neither, and writes to a volume whose key is rotated.
`home` compares a volume that is at home where it is attached with one whose copies are anywhere, and with qemu-nbd.
`doors` compares iSCSI with tgt's and vhost-user with qemu-storage-daemon's, both on a raw file, and the processor time of a
request over NVMe/TCP with that of one over NBD; --only chooses among iscsi, vhost and nvme, write and read. With --attached
the volume is at home where it is attached.
TEXT
}

command_bench() {
    ensure_tools "${BENCH_TOOLS[@]}"
    build_binary
    if [[ ${1:-} == doors ]]; then
        ensure_tools "${DOOR_TOOLS[@]}"
        ensure_rust
        (cd "$ROOT" && cargo build --release --package azekura-load >&2) || die "the build failed (its messages are above)"
        export AZEKURA_LOAD=${CARGO_TARGET_DIR:-$ROOT/target}/release/azekura-load
    fi
    cd "$ROOT" || die "cannot enter $ROOT"
    AZEKURA_BIN=$AZEKURA PYTHONDONTWRITEBYTECODE=1 exec python3 -m tools.bench "$@"
}
