# shellcheck shell=bash
# Hostile bytes for every parser that strangers reach.

help_fuzz() {
    cat <<'TEXT'
usage: ./dev fuzz [--inputs N] [--record]

Gives every parser of bytes that come before anybody has proved anything (NBD, iSCSI, NVMe/TCP, vhost-user, the data port,
tokens, secrets) random, damaged and cut inputs: the property tests that ./dev test runs with 256 inputs each, with more, and
built as a release is, but with debug assertions. A panic, a hang or a wrong answer fails the command, and the input is shown, and
kept beside the test. Prints a table. Ten million inputs of each test take some hours.
  --inputs N   inputs of each test (default: 100000). Those whose inputs are whole dialogues get a tenth of that, and
               those that carry out handshakes of TLS a hundredth
  --record     write the table into docs/security.md
TEXT
}

# Each port, and the tests that are about it: crate, `cargo test` target and name.
FUZZED=(
    "NBD|nbd|integration|robustness::any_bytes_are_survived"
    "NBD with TLS|nbd|integration|starttls::without_tls_there_is_nothing"
    "iSCSI|iscsi|integration|pdu::any_bytes_are_survived"
    "iSCSI|iscsi|integration|login::any_login_is_survived"
    "iSCSI|iscsi|azekura_iscsi|no_value_does_harm"
    "NVMe/TCP|nvme|integration|pdu::any_bytes_are_survived"
    "NVMe/TCP|nvme|integration|pdu::any_beginning_is_survived"
    "NVMe/TCP|nvme|integration|command::any_entry_is_survived"
    "NVMe/TCP|nvme|integration|command::any_connect_data_is_survived"
    "NVMe/TCP|nvme|azekura_nvme|any_bytes_are_a_message_or_not"
    "NVMe/TCP|nvme|azekura_nvme|nobody_is_let_in_by_chance"
    "vhost-user|vhost|azekura_vhost|any_bytes_are_a_message_or_a_breach"
    "data port|wire|frames|hostile_bytes_never_panic"
    "data port|wire|greetings|greetings_of_other_versions_say_who_speaks"
    "API: tokens|base|azekura_base|any_text_is_survived"
    "secrets of hosts|base|azekura_base|any_bytes_are_a_secret_or_not"
)
# One input is a dialogue, and takes ten times as long or more.
FUZZED_DIALOGUES=(
    "NBD|nbd|integration|robustness::damage_is_survived"
    "vhost-user|vhost|azekura_vhost|any_messages"
    "vhost-user|vhost|azekura_vhost|no_request_without_the_volume_and_no_page_without_its_bit"
)
# As TLS itself is the work here, these take a thousand times as long.
FUZZED_HANDSHAKES=(
    "TLS of all ports|transport|channels|noise_is_refused"
    "TLS of all ports|transport|channels|damaged_handshakes_are_refused"
)

# built_tests: a line "crate target binary" for each test of the crates that are named above.
built_tests() {
    local line crates=()
    for line in "${FUZZED[@]}" "${FUZZED_DIALOGUES[@]}" "${FUZZED_HANDSHAKES[@]}"; do
        line=${line#*|}
        crates+=(-p "azekura-${line%%|*}")
    done
    (cd "$ROOT" && cargo test --profile fuzz "${crates[@]}" --lib --tests --no-run --message-format=json 2>/dev/null) |
        sed -n 's|.*"name":"\([^"]*\)".*"src_path":"[^"]*/crates/\([^/"]*\)/.*"executable":"\([^"]*\)".*|\2 \1 \3|p'
}

# run_fuzzed INPUTS TESTS LINE...: runs these, of the built `TESTS`, and prints a row of a table for each.
run_fuzzed() {
    local inputs=$1 tests=$2 line port crate target name binary before log=${CARGO_TARGET_DIR:-$ROOT/target}/fuzz.log
    shift 2
    for line in "$@"; do
        IFS='|' read -r port crate target name <<<"$line"
        binary=$(sed -n "s|^$crate $target ||p" <<<"$tests" | head -n 1)
        # The whole list is read: a program that is no longer listened to ends with an error.
        [[ -n $binary ]] && grep -q "\b$name: test\$" <<<"$("$binary" --list 2>/dev/null)" ||
            die "crate $crate has no test $name in $target any more; scripts/dev/fuzz.sh lists it"
        before=$SECONDS
        (cd "$ROOT/crates/$crate" && PROPTEST_CASES=$inputs "$binary" "$name") >"$log" 2>&1 ||
            die "$port: $name failed; what it says is in $log"
        printf '| %s | `%s` | %s | %s s |\n' "$port" "$name" "$inputs" $((SECONDS - before))
    done
}

# record_fuzz TABLE: writes it into the document, with the commit and the day.
record_fuzz() {
    PYTHONDONTWRITEBYTECODE=1 python3 - "$1" <<'PYTHON'
import sys, time
from tools.harness.document import SECURITY, commit, replace_part
replace_part(SECURITY, "fuzz", f"{sys.argv[1]}\n\nAt {commit()}, {time.strftime('%Y-%m-%d')}.")
PYTHON
}

command_fuzz() {
    local inputs=100000 record=no
    while (($# > 0)); do
        case $1 in
            --inputs) need_value "$1" $# && inputs=$2 && shift ;;
            --record) record=yes ;;
            *) die "fuzz does not know '$1' (./dev fuzz --help)" ;;
        esac
        shift
    done
    [[ $inputs =~ ^[1-9][0-9]*$ ]] || die "--inputs '$inputs': it is a whole number, at least 1"
    ensure_tools "${BUILD_TOOLS[@]}" python3:python3
    ensure_rust
    cd "$ROOT" || die "cannot enter $ROOT"
    local tests table
    step "building the tests"
    tests=$(built_tests)
    [[ -n $tests ]] || die "the tests could not be built (cargo test --workspace says why)"
    table=$(
        printf '| port | test | inputs | took |\n|---|---|---:|---:|\n' | tee >(cat >&2)
        {
            run_fuzzed "$inputs" "$tests" "${FUZZED[@]}" &&
                run_fuzzed $(((inputs + 9) / 10)) "$tests" "${FUZZED_DIALOGUES[@]}" &&
                run_fuzzed $(((inputs + 99) / 100)) "$tests" "${FUZZED_HANDSHAKES[@]}"
        } | tee >(cat >&2)
    ) || die "the table is not whole"
    if [[ $record == yes ]]; then
        record_fuzz "$table"
    fi
}
