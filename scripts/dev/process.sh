# shellcheck shell=bash
# Background processes and the proof that a process id is still the process that we started.
#
# A pid file holds the process id and its start time in clock ticks since boot. An id alone may have been given to
# somebody else after a crash or a reboot; id, start time and the data folder in the command line together have not.

# Start time (field 22 of /proc/PID/stat; the name in field 2 may hold spaces), empty when gone or a zombie.
process_start_time() {
    local stat
    { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 0
    stat=${stat##*) }
    local fields
    read -ra fields <<<"$stat"
    [[ ${fields[0]} != Z && ${fields[0]} != X ]] || return 0
    echo "${fields[19]}"
}

# running NAME: prints the process id when the process of that name is ours and alive.
running() {
    local pid_file=$RUN_DIR/$1.pid pid start
    [[ -r $pid_file ]] || return 1
    read -r pid start <"$pid_file" || return 1
    [[ $pid =~ ^[0-9]+$ && -n $start && $(process_start_time "$pid") == "$start" ]] || return 1
    tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep --quiet --line-regexp --fixed-strings -e "$DEV_DIR/$1" || return 1
    echo "$pid"
}

# launch NAME COMMAND...: starts a process in the background that outlives this shell, with its log in log/NAME.log.
# The command line must hold "$DEV_DIR/NAME" as a word of its own (its data folder), see running.
launch() {
    local name=$1
    shift
    mkdir -p "$RUN_DIR" "$LOG_DIR"
    printf -- '---- %s start: %s\n' "$(date --iso-8601=seconds)" "$*" >>"$LOG_DIR/$name.log"
    setsid "$@" >>"$LOG_DIR/$name.log" 2>&1 </dev/null 9>&- &
    local pid=$! start
    start=$(process_start_time "$pid")
    echo "$pid ${start:-0}" >"$RUN_DIR/$name.pid"
    disown "$pid" 2>/dev/null || true
    # For an instant the new process is still this shell, with this shell's command line.
    local tries
    for ((tries = 0; tries < 100; ++tries)); do
        if running "$name" >/dev/null || [[ -z $(process_start_time "$pid") ]]; then
            break
        fi
        sleep 0.02
    done
}

# stop_process NAME: asks to end, waits, and kills what does not listen.
stop_process() {
    local name=$1 pid waited=0
    if ! pid=$(running "$name"); then
        rm -f "$RUN_DIR/$name.pid"
        return 0
    fi
    kill -TERM "$pid" 2>/dev/null || true
    while running "$name" >/dev/null; do
        sleep 0.1
        ((++waited))
        ((waited != 50)) || say "    $name is still writing out; waiting up to 30 s"
        if ((waited >= 300)); then
            warn "$name did not stop within 30 s of SIGTERM; killing it (see ./dev logs $name)"
            kill -KILL "$pid" 2>/dev/null || true
            sleep 0.5
            break
        fi
    done
    rm -f "$RUN_DIR/$name.pid"
}

# True when something listens on the port of the loopback.
port_taken() { (exec 3<>"/dev/tcp/$HOST/$1") 2>/dev/null; }

# need_free_port PORT WHAT VARIABLE
need_free_port() {
    port_taken "$1" || return 0
    local owner=''
    if have ss; then
        owner=$(ss -Hltnp "sport = :$1" 2>/dev/null | sed -n 's/.*users:((\("[^"]*"\),pid=\([0-9]*\).*/ (\1, process \2)/p' | head -n 1)
    fi
    die "port $1 ($2) is in use by another process$owner. Stop it, or choose other ports: $3=... ./dev up"
}

# The last lines that a process wrote, for an error message.
tail_log() { sed 's/^/    /' <(tail -n "${2:-12}" "$LOG_DIR/$1.log" 2>/dev/null) >&2; }
