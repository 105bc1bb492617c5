# shellcheck shell=bash
# The azekura binary.

# Sets AZEKURA to the binary's path without building it.
locate_binary() { AZEKURA=${AZEKURA_BIN:-${CARGO_TARGET_DIR:-$ROOT/target}/release/azekura}; }

# Builds the release binary (or takes AZEKURA_BIN) and sets AZEKURA to its path.
build_binary() {
    locate_binary
    if [[ -n ${AZEKURA_BIN:-} ]]; then
        [[ -x $AZEKURA ]] || die "AZEKURA_BIN=$AZEKURA is not an executable file"
        return 0
    fi
    ensure_tools "${BUILD_TOOLS[@]}"
    ensure_rust
    step "building azekura (release; the first time takes some minutes)"
    (cd "$ROOT" && cargo build --release --package azekura >&2) || die "the build failed (its messages are above)"
    [[ -x $AZEKURA ]] || die "the build succeeded but there is no $AZEKURA"
}

# For commands that only ask: the binary must be there already.
need_binary() {
    locate_binary
    [[ -x $AZEKURA ]] || die "there is no $AZEKURA yet: run ./dev up first"
}
