# shellcheck shell=bash
# Starting and stopping the local cluster: the configuration server, three nodes, the volume.

HEALTHY_WITHIN_S=120

# What the data folder was made with: CONFIG (embedded or etcd) and SIZE_MIB of the volume. Not found: both empty.
read_settings() {
    CONFIG='' SIZE_MIB=''
    [[ -r $SETTINGS ]] || return 0
    CONFIG=$(sed -n 's/^config=//p' "$SETTINGS")
    SIZE_MIB=$(sed -n 's/^size_mib=//p' "$SETTINGS")
}

write_settings() {
    mkdir -p "$DEV_DIR" "$RUN_DIR" "$LOG_DIR"
    printf '# Written by ./dev up; ./dev wipe removes this folder only while this file is in it.\nconfig=%s\nsize_mib=%s\n' \
        "$CONFIG" "$SIZE_MIB" >"$SETTINGS.new"
    mv "$SETTINGS.new" "$SETTINGS"
}

# Each device takes 4/5 of the volume's size: three of them hold two copies of a full volume and the log's reserve.
device_mib() {
    local mib=$((SIZE_MIB * 4 / 5))
    echo $((mib < 1024 ? 1024 : mib))
}

need_disk_space() {
    local need_mib=0 free_mib name
    for name in "${NODES[@]}"; do
        [[ -e $DEV_DIR/$name ]] || need_mib=$((need_mib + $(device_mib)))
    done
    free_mib=$(df --output=avail -B 1M "$DEV_DIR" | tail -n 1)
    ((need_mib + 1024 <= free_mib)) ||
        die "the nodes' devices need $((need_mib / 1024)) GiB under $DEV_DIR and $((free_mib / 1024)) GiB are free." \
            "Take a smaller volume (./dev up --size 2GiB) or another disk (AZEKURA_DEV_DIR=/big/folder)"
}

# start_etcd: Debian's own etcd, one member, on the configuration port.
start_etcd() {
    running etcd >/dev/null && return 0
    need_free_port "$CONFIG_PORT" "etcd clients" AZEKURA_DEV_PORT
    need_free_port "$ETCD_PEER_PORT" "etcd peers" AZEKURA_DEV_PORT
    step "starting etcd on $HOST:$CONFIG_PORT"
    launch etcd etcd --name dev --data-dir "$DEV_DIR/etcd" \
        --listen-client-urls "http://$HOST:$CONFIG_PORT" --advertise-client-urls "http://$HOST:$CONFIG_PORT" \
        --listen-peer-urls "http://$HOST:$ETCD_PEER_PORT" --initial-advertise-peer-urls "http://$HOST:$ETCD_PEER_PORT" \
        --initial-cluster "dev=http://$HOST:$ETCD_PEER_PORT" --logger zap \
        --auto-compaction-mode periodic --auto-compaction-retention 1h
    local tries
    for ((tries = 0; tries < 300; ++tries)); do
        running etcd >/dev/null || {
            tail_log etcd
            die "etcd ended at its start (last lines above)"
        }
        curl --silent --fail "http://$HOST:$CONFIG_PORT/health" >/dev/null && return 0
        sleep 0.1
    done
    die "etcd does not answer after 30 s: ./dev logs etcd"
}

# start_node NUMBER: starts node nNUMBER when it is not running.
start_node() {
    local number=$1 name=n$1 serve=()
    running "$name" >/dev/null && return 0
    need_free_port "$(data_port "$number")" "data of $name" AZEKURA_DEV_PORT
    need_free_port "$(api_port "$number")" "API of $name" AZEKURA_DEV_PORT
    need_free_port "$(nbd_port "$number")" "NBD of $name" AZEKURA_DEV_NBD_PORT
    if [[ $CONFIG == embedded && $number == 1 ]]; then
        need_free_port "$CONFIG_PORT" "configuration" AZEKURA_DEV_PORT
        serve=(--serve-config "$HOST:$CONFIG_PORT")
    fi
    step "starting node $name"
    launch "$name" "$AZEKURA" node --name "$name" --data "$DEV_DIR/$name" \
        --listen "$HOST:$(data_port "$number")" --api "$HOST:$(api_port "$number")" \
        --nbd "$HOST:$(nbd_port "$number")" --nbd-socket "$(nbd_socket "$number")" \
        --config "http://$HOST:$CONFIG_PORT" --device-size "$(device_mib)MiB" "${serve[@]+"${serve[@]}"}"
}

nodes_alive_or_die() {
    local name
    for name in "${NODES[@]}"; do
        running "$name" >/dev/null || {
            tail_log "$name"
            die "node $name ended (last lines above; all of them: ./dev logs $name)"
        }
    done
}

azekura() { AZEKURA_API=$(api_url 1) "$AZEKURA" "$@"; }

# Waits in short rounds, so that a node which ends is told at once.
wait_healthy() {
    local began=$SECONDS waited_s
    while true; do
        nodes_alive_or_die
        azekura status --wait 3 >/dev/null 2>"$RUN_DIR/status.err" && return 0
        sleep 0.2
        waited_s=$((SECONDS - began))
        ((waited_s < HEALTHY_WITHIN_S)) || {
            sed 's/^/    /' "$RUN_DIR/status.err" >&2
            die "the cluster is not healthy after $HEALTHY_WITHIN_S s (last answer above; logs: ./dev logs)"
        }
        ((waited_s < 9)) || say "    waiting until healthy ($waited_s s): $(tail -n 1 "$RUN_DIR/status.err")"
    done
}

volume_present() { azekura volume show "$VOLUME" --json >/dev/null 2>&1; }

start_cluster() {
    local number
    mkdir -p "$(socket_dir)" "$RUN_DIR" "$LOG_DIR"
    chmod 700 "$(socket_dir)"
    [[ $CONFIG != etcd ]] || start_etcd
    for number in 1 2 3; do
        start_node "$number"
    done
}

# Stops what runs and sets STOPPED to how many that were. All nodes are asked first: they write out side by side.
stop_cluster() {
    local name pid
    STOPPED=0
    for name in "${NODES[@]}"; do
        if pid=$(running "$name"); then
            step "stopping $name"
            STOPPED=$((STOPPED + 1))
            kill -TERM "$pid" 2>/dev/null || true
        fi
    done
    if running etcd >/dev/null; then
        step "stopping etcd"
        STOPPED=$((STOPPED + 1))
    fi
    # etcd and n1, which may serve the configuration, go last.
    for name in n3 n2 n1 etcd; do
        stop_process "$name"
    done
}

# True when the process runs a binary that a build has replaced since.
runs_old_binary() {
    local pid
    pid=$(running "$1") || return 1
    [[ $(readlink "/proc/$pid/exe" 2>/dev/null) == *' (deleted)' ]]
}
