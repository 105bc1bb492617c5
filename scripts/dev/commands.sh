# shellcheck shell=bash
# The commands around the local cluster: up, uri, status, logs, cli, down, wipe.

help_up() {
    cat <<'TEXT'
usage: ./dev up [--etcd] [--size 10GiB]

Starts a three-node cluster on this machine and a volume to play with:
  1. installs what is missing with apt (it says what);
  2. builds azekura in release mode;
  3. starts nodes n1, n2 and n3 on 127.0.0.1, each with its own folder and device file under .azekura/,
     and the configuration server (inside n1, or etcd with --etcd);
  4. makes the volume vol1, thin, with two copies, if it is not there;
  5. waits until all of it is healthy and prints lines to paste.
Run again, it starts what is not running and changes nothing else.

  --etcd        use Debian's etcd as configuration server instead of the embedded one
  --size SIZE   size of vol1 when it is made (default 10GiB); the three devices take 4/5 of it each
TEXT
}

command_up() {
    local config='' size=''
    while (($# > 0)); do
        case $1 in
            --etcd) config=etcd ;;
            --size) need_value "$1" $# && size=$2 && shift ;;
            --size=*) size=${1#*=} ;;
            --release) ;; # the only kind that is built
            *) die "up does not know '$1' (./dev up --help)" ;;
        esac
        shift
    done
    local wanted_mib=''
    [[ -z $size ]] || wanted_mib=$(to_mib "$size")
    take_lock
    read_settings
    if [[ -n $CONFIG && -n $config && $config != "$CONFIG" ]]; then
        die "the cluster in $DEV_DIR was made with its $CONFIG configuration server." \
            "Start it with plain ./dev up, or begin anew: ./dev wipe && ./dev up --etcd"
    fi
    if [[ -n $SIZE_MIB && -n $wanted_mib && $wanted_mib != "$SIZE_MIB" ]]; then
        die "$VOLUME was made with $(human_size "$SIZE_MIB"). To grow it: ./dev cli volume resize $VOLUME $size;" \
            "to begin anew: ./dev wipe && ./dev up --size $size"
    fi
    CONFIG=${CONFIG:-${config:-embedded}}
    SIZE_MIB=${SIZE_MIB:-${wanted_mib:-10240}}

    ensure_tools "${CLIENT_TOOLS[@]}" curl:curl
    [[ $CONFIG != etcd ]] || ensure_tools "${ETCD_TOOLS[@]}"
    build_binary
    need_disk_space
    write_settings

    local changed=no name
    for name in "${NODES[@]}"; do
        running "$name" >/dev/null || changed=yes
    done
    if [[ $CONFIG == etcd ]] && ! running etcd >/dev/null; then
        changed=yes
    fi
    start_cluster
    [[ $changed == no ]] || step "waiting until the cluster is healthy"
    wait_healthy
    if ! volume_present; then
        changed=yes
        step "making volume $VOLUME ($(human_size "$SIZE_MIB"), 2 copies, thin)"
        azekura volume create "$VOLUME" "$(human_size "$SIZE_MIB")" --copies 2 --shared >/dev/null ||
            die "the volume could not be made (message above)"
        wait_healthy
    fi
    nbdinfo --size "$(volume_uri 1 unix)" >/dev/null || die "n1 is healthy but does not answer on NBD: ./dev logs n1"
    if [[ $changed == yes ]]; then
        step "ready"
    else
        step "already up and healthy: nothing changed"
    fi
    for name in "${NODES[@]}"; do
        if runs_old_binary "$name"; then
            warn "$name runs an older build than the one just made: ./dev down && ./dev up takes the new one"
            break
        fi
    done
    print_lines
}

# volume_uri NODE-NUMBER unix|tcp
volume_uri() {
    if [[ $2 == tcp ]]; then
        echo "nbd://$HOST:$(nbd_port "$1")/$VOLUME"
    else
        echo "nbd+unix:///$VOLUME?socket=$(nbd_socket "$1")"
    fi
}

print_lines() {
    local uri
    uri=$(volume_uri 1 unix)
    cat <<TEXT

Volume $VOLUME: 2 copies on 3 nodes, served by each of them, also at the same time (--shared). Lines to paste:

  look       nbdinfo '$uri'
             qemu-img info $(volume_uri 2 tcp)
  speed      fio --name=try --ioengine=nbd --uri='$uri' --rw=randwrite --bs=4k --iodepth=128 \\
                 --size=2G --time_based --runtime=10 --group_reporting
  copy       qemu-img convert -p -n -O raw disk.qcow2 '$uri'
  mount      mkdir -p /tmp/vol && nbdfuse /tmp/vol '$uri' &
             mkfs.ext4 /tmp/vol/nbd && mkdir -p /mnt/vol && mount -o loop /tmp/vol/nbd /mnt/vol     (as root)
  unmount    umount /mnt/vol && fusermount3 -u /tmp/vol
  watch      ./dev status        ./dev cli top        ./dev logs -f
  benchmark  ./dev bench
  stop       ./dev down          (the data stays; ./dev wipe deletes it)

TEXT
}

help_uri() {
    cat <<'TEXT'
usage: ./dev uri [--tcp] [--node N]

Prints the NBD URI of vol1 and nothing else, for scripts. Every node serves every volume.
  --tcp      the TCP URI instead of the unix socket's
  --node N   through node 1, 2 or 3 (default 1)
TEXT
}

command_uri() {
    local kind=unix node=1
    while (($# > 0)); do
        case $1 in
            --tcp) kind=tcp ;;
            --node) need_value "$1" $# && node=${2#n} && shift ;;
            --node=*) node=${1#*=} && node=${node#n} ;;
            *) die "uri does not know '$1' (./dev uri --help)" ;;
        esac
        shift
    done
    [[ $node == [123] ]] || die "there is no node '$node': 1, 2 or 3"
    volume_uri "$node" "$kind"
}

help_status() {
    cat <<'TEXT'
usage: ./dev status

Shows the processes of the local cluster (id, CPU time, resident memory) and what the cluster says of itself.
The exit code is 0 when all is up and healthy.
TEXT
}

command_status() {
    (($# == 0)) || die "status takes no '$1'"
    read_settings
    [[ -n $CONFIG ]] || die "there is no cluster in $DEV_DIR: ./dev up makes one"
    local name pid bad=0 names=("${NODES[@]}")
    [[ $CONFIG != etcd ]] || names+=(etcd)
    printf '%-6s %8s %12s %10s\n' process id 'cpu time' 'memory'
    for name in "${names[@]}"; do
        if pid=$(running "$name"); then
            printf '%-6s %8s %12s %7d MiB\n' "$name" "$pid" "$(ps -o cputime= -p "$pid" | tr -d ' ')" \
                "$(($(ps -o rss= -p "$pid") / 1024))"
        else
            printf '%-6s %8s   not running\n' "$name" -
            bad=1
        fi
    done
    echo
    if running n1 >/dev/null; then
        need_binary
        azekura status || bad=1
    else
        say "n1 is not running: ./dev up starts it"
    fi
    return $bad
}

help_logs() {
    cat <<'TEXT'
usage: ./dev logs [n1|n2|n3|etcd ...] [-f] [-n LINES]

Shows the end of the processes' logs (all of them, or those named); -f goes on showing new lines.
TEXT
}

command_logs() {
    local names=() options=() file files=()
    while (($# > 0)); do
        case $1 in
            n1 | n2 | n3 | etcd) names+=("$1") ;;
            -f | --follow) options+=(-F) ;;
            -n) need_value "$1" $# && options+=(-n "$2") && shift ;;
            *) die "logs does not know '$1' (./dev logs --help)" ;;
        esac
        shift
    done
    [[ ${#names[@]} -gt 0 ]] || names=("${NODES[@]}" etcd)
    for file in "${names[@]/#/$LOG_DIR/}"; do
        [[ ! -e $file.log ]] || files+=("$file.log")
    done
    ((${#files[@]} > 0)) || die "there are no logs in $LOG_DIR yet: ./dev up starts the cluster"
    tail "${options[@]+"${options[@]}"}" "${files[@]}"
}

help_cli() {
    cat <<'TEXT'
usage: ./dev cli ARGUMENTS...

Runs the azekura command against the local cluster's first node:
  ./dev cli volume list
  ./dev cli top
  ./dev cli --help
TEXT
}

command_cli() {
    if (($# == 0)); then
        help_cli
        return 0
    fi
    need_binary
    azekura "$@"
}

help_down() {
    cat <<'TEXT'
usage: ./dev down

Stops the processes that ./dev up started, and no other: a process id counts only while its start time and its
command line are the ones noted at the start. The data stays in .azekura/, the next ./dev up has it.
TEXT
}

command_down() {
    (($# == 0)) || die "down takes no '$1'"
    [[ -d $DEV_DIR ]] || {
        say "nothing to stop: there is no $DEV_DIR"
        return 0
    }
    take_lock
    stop_cluster
    if ((STOPPED > 0)); then
        say "stopped; the data stays in $DEV_DIR"
    else
        say "nothing was running"
    fi
}

help_wipe() {
    cat <<'TEXT'
usage: ./dev wipe [--yes]

Stops the local cluster and deletes its data folder, after asking. --yes does not ask.
TEXT
}

command_wipe() {
    local sure=no answer
    while (($# > 0)); do
        case $1 in
            --yes | -y) sure=yes ;;
            *) die "wipe does not know '$1' (./dev wipe --help)" ;;
        esac
        shift
    done
    [[ -d $DEV_DIR ]] || {
        say "nothing to delete: there is no $DEV_DIR"
        return 0
    }
    # The settings file marks a folder as ours: a mistyped AZEKURA_DEV_DIR must not cost somebody's files.
    [[ -e $SETTINGS ]] || die "$DEV_DIR was not made by ./dev up (it has no file 'settings'); not deleting it"
    if [[ $sure == no ]]; then
        [[ -t 0 ]] || die "not deleting without a terminal to ask on: ./dev wipe --yes"
        read -r -p "Delete all data of the local cluster, $(du -sh "$DEV_DIR" | cut -f 1) in $DEV_DIR? [y/N] " answer
        [[ $answer == [yY]* ]] || die "nothing deleted"
    fi
    take_lock
    stop_cluster
    local name
    for name in "${NODES[@]}" etcd run log; do
        rm -rf -- "${DEV_DIR:?}/$name"
    done
    [[ $(socket_dir) == "$RUN_DIR" ]] || rm -rf -- "$(socket_dir)"
    rm -f -- "$SETTINGS" "$DEV_DIR/lock"
    rmdir --ignore-fail-on-non-empty -- "$DEV_DIR"
    say "deleted $DEV_DIR"
}
