# shellcheck shell=bash
# Hostile bytes for every parser that strangers reach.

help_fuzz() {
    cat <<'TEXT'
usage: ./dev fuzz [--inputs N]

Gives every parser of bytes that come before anybody has proved anything (NBD, iSCSI, NVMe/TCP, vhost-user, the data port,
tokens, secrets) random, damaged and cut inputs: the property tests that ./dev test runs with 256 inputs each, with more.
A panic, a hang or a wrong answer fails the command, and the input is shown, and kept beside the test. Prints a table.
  --inputs N   inputs of each test (default: 100000). Those whose inputs are whole dialogues get a tenth of that, and
               those that carry out handshakes of TLS a hundredth
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
)
# As TLS itself is the work here, these take a thousand times as long.
FUZZED_HANDSHAKES=(
    "TLS of all ports|transport|channels|noise_is_refused"
    "TLS of all ports|transport|channels|damaged_handshakes_are_refused"
)

# built_tests: a line "crate target binary" for each of them.
built_tests() {
    (cd "$ROOT" && cargo test --workspace --lib --test integration --test frames --test greetings --test channels \
        --no-run --message-format=json 2>/dev/null) |
        sed -n 's|.*"name":"\([^"]*\)".*"src_path":"[^"]*/crates/\([^/"]*\)/.*"executable":"\([^"]*\)".*|\2 \1 \3|p'
}

# run_fuzzed INPUTS TESTS LINE...: runs these, of the built `TESTS`, and prints a row of a table for each.
run_fuzzed() {
    local inputs=$1 tests=$2 line port crate target name binary before
    shift 2
    for line in "$@"; do
        IFS='|' read -r port crate target name <<<"$line"
        binary=$(sed -n "s|^$crate $target ||p" <<<"$tests" | head -n 1)
        [[ -n $binary ]] && "$binary" --list 2>/dev/null | grep -q "\b$name: test\$" ||
            die "crate $crate has no test $name in $target any more; scripts/dev/fuzz.sh lists it"
        before=$SECONDS
        (cd "$ROOT/crates/$crate" && PROPTEST_CASES=$inputs "$binary" "$name") >"$ROOT/target/fuzz.log" 2>&1 ||
            die "$port: $name failed; what it says is in target/fuzz.log"
        printf '| %s | `%s` | %s | %s s |\n' "$port" "$name" "$inputs" $((SECONDS - before))
    done
}

command_fuzz() {
    local inputs=100000
    while (($# > 0)); do
        case $1 in
            --inputs) need_value "$1" $# && inputs=$2 && shift ;;
            *) die "fuzz does not know '$1' (./dev fuzz --help)" ;;
        esac
        shift
    done
    [[ $inputs =~ ^[1-9][0-9]*$ ]] || die "--inputs '$inputs': it is a whole number, at least 1"
    ensure_tools "${BUILD_TOOLS[@]}"
    ensure_rust
    local tests
    step "building the tests"
    tests=$(built_tests)
    [[ -n $tests ]] || die "the tests could not be built (cargo test --workspace says why)"
    echo '| port | test | inputs | took |'
    echo '|---|---|---:|---:|'
    run_fuzzed "$inputs" "$tests" "${FUZZED[@]}"
    run_fuzzed $(((inputs + 9) / 10)) "$tests" "${FUZZED_DIALOGUES[@]}"
    run_fuzzed $(((inputs + 99) / 100)) "$tests" "${FUZZED_HANDSHAKES[@]}"
}
