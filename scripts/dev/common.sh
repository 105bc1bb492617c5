# shellcheck shell=bash
# Messages, sizes, paths and ports that every command shares.

# Progress goes to standard error, so that standard output stays clean for scripts.
say() { printf '%s\n' "$*" >&2; }
step() { printf '%s==>%s %s\n' "$BOLD" "$PLAIN" "$*" >&2; }
warn() { printf 'dev: warning: %s\n' "$*" >&2; }
die() {
    printf 'dev: %s\n' "$*" >&2
    exit 1
}

BOLD='' PLAIN=''
if [[ -t 2 && -z ${NO_COLOR:-} ]]; then
    BOLD=$'\e[1m' PLAIN=$'\e[0m'
fi

have() { command -v "$1" >/dev/null 2>&1; }

wants_help() {
    local word
    for word in "$@"; do
        [[ $word == -h || $word == --help ]] && return 0
    done
    return 1
}

# need_value OPTION REMAINING-COUNT: an option that takes a value must have one.
need_value() { (($2 >= 2)) || die "$1 needs a value"; }

# to_mib 10GiB -> 10240. Units are binary; K, M, G, T and their -iB forms are the same.
to_mib() {
    local text=$1 number unit
    [[ $text =~ ^([0-9]{1,6})([MGT])(iB|B)?$ ]] || die "size '$text': write a number and M, G or T, as in 10GiB"
    number=$((10#${BASH_REMATCH[1]})) unit=${BASH_REMATCH[2]}
    case $unit in
        M) ;;
        G) number=$((number * 1024)) ;;
        T) number=$((number * 1024 * 1024)) ;;
    esac
    ((number > 0)) || die "size '$text': must be more than zero"
    echo "$number"
}

# human_size MIB -> "10GiB" or "1536MiB"
human_size() {
    if (($1 % 1024 == 0)); then
        echo "$(($1 / 1024))GiB"
    else
        echo "$1MiB"
    fi
}

to_port() {
    if ! [[ $2 =~ ^[0-9]{1,5}$ ]] || ((10#$2 == 0 || 10#$2 >= 65436)); then
        die "$1=$2 is not a usable port number"
    fi
    echo $((10#$2))
}

NODES=(n1 n2 n3)
VOLUME=vol1
HOST=127.0.0.1

DEV_DIR=${AZEKURA_DEV_DIR:-$ROOT/.azekura}
[[ $DEV_DIR == /* ]] || DEV_DIR=$PWD/$DEV_DIR
RUN_DIR=$DEV_DIR/run
LOG_DIR=$DEV_DIR/log
SETTINGS=$DEV_DIR/settings
PORT_BASE=$(to_port AZEKURA_DEV_PORT "${AZEKURA_DEV_PORT:-7100}")
NBD_BASE=$(to_port AZEKURA_DEV_NBD_PORT "${AZEKURA_DEV_NBD_PORT:-10809}")

CONFIG_PORT=$((PORT_BASE + 79))
ETCD_PEER_PORT=$((PORT_BASE + 78))

# Ports by node number (1, 2, 3).
data_port() { echo $((PORT_BASE + $1)); }
api_port() { echo $((PORT_BASE + 80 + $1)); }
nbd_port() { echo $((NBD_BASE + $1 - 1)); }
api_url() { echo "http://$HOST:$(api_port "$1")"; }

# A unix socket's path is limited to 107 bytes by the kernel; a deep project folder gets its sockets in /tmp.
socket_dir() {
    if ((${#RUN_DIR} <= 90)); then
        echo "$RUN_DIR"
    else
        local digest
        digest=$(printf '%s' "$RUN_DIR" | cksum | cut -d ' ' -f 1)
        echo "/tmp/azekura-dev-$(id -u)-$digest"
    fi
}
nbd_socket() { echo "$(socket_dir)/n$1.nbd"; }

# One of `up`, `down` and `wipe` at a time for one data folder.
take_lock() {
    mkdir -p "$DEV_DIR"
    exec 9>"$DEV_DIR/lock"
    if ! flock --nonblock 9; then
        say "waiting for another ./dev that works on $DEV_DIR ..."
        flock 9
    fi
}
