# shellcheck shell=bash
# The torment: see tools/torment/.

help_torment() {
    cat <<'TEXT'
usage: ./dev torment [--minutes M] [--seed S] [--nodes N] [--shards N|draw] [--faults KIND,KIND...] [--light]
                     [--record] [--logs FOLDER]
       ./dev torment --figures [FIGURE...] [--minutes M]

A cluster of real processes, each node in a network namespace of its own, three members of etcd, devices on small file
systems, one of them behind a server that can be made to stand still. Nodes are killed and stopped, links cut one way and
both, a device's file system filled, a device hangs, etcd's leader is killed, one after the other as drawn from the seed, while
writers and readers (one of a class that wants both of two copies), fio and a PostgreSQL work on. In the end nothing
acknowledged may be missing. Needs root.
  --minutes M   how long (default 10)
  --seed S      the same faults in the same order; without it, another each time
  --shards ...  how many shards each node has, and as many devices, which share its space: 1 to 4, or draw: 1 or 2 for
                each node, as the seed says (default; with --figures 1)
  --faults ...  only these kinds
  --record      writes the result into docs/reliability.md
  --light       only the writers and readers, no fio and no PostgreSQL
  --logs FOLDER where the logs go if something was wrong (default .torment/seed-S)
  --figures     measures pauses and repair traffic instead, and writes them into docs/reliability.md
The exit code is 0 if nothing was wrong. Ctrl-C ends it at once; nothing stays behind.
TEXT
}

command_torment() {
    ensure_tools "${CLIENT_TOOLS[@]}" "${ETCD_TOOLS[@]}" "${TORMENT_TOOLS[@]}"
    [[ -n $(compgen -G '/usr/lib/postgresql/*/bin/pg_checksums') ]] || ensure_packages postgresql
    ensure_python json:python3
    build_binary
    cd "$ROOT" || die "cannot enter $ROOT"
    AZEKURA_BIN=$AZEKURA PYTHONDONTWRITEBYTECODE=1 exec "$PYTHON" -m tools.torment "$@"
}
