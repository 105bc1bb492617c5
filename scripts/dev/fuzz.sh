# shellcheck shell=bash
# Hostile bytes for every parser that strangers reach.

help_fuzz() {
    cat <<'TEXT'
usage: ./dev fuzz [--inputs N] [--only REGEX] [--threads N] [--record]

Gives every parser of bytes that come before anybody has proved anything (NBD, iSCSI, NVMe/TCP, vhost-user, the data port,
tokens, secrets) random, damaged and cut inputs: the property tests that ./dev test runs with 256 inputs each, with more, and
built as a release is, but with debug assertions. A panic, a hang or a wrong answer fails the command, and the input is shown, and
kept beside the test. Prints a table. Ten million inputs of each test take some hours.
  --inputs N    inputs of each test (default: 100000). Those whose inputs are whole dialogues get a tenth of that, and
                those that carry out handshakes of TLS a hundredth
  --only REGEX  only ports and tests that are named so:  --only '^NBD'
  --threads N   so many tests side by side (default: one a processor)
  --record      write each row into docs/security.md when its test has ended; rows of other tests stay
TEXT
}

command_fuzz() {
    ensure_tools "${BUILD_TOOLS[@]}" python3:python3
    ensure_rust
    cd "$ROOT" || die "cannot enter $ROOT"
    PYTHONDONTWRITEBYTECODE=1 exec python3 -m tools.fuzz "$@"
}
