# shellcheck shell=bash
# The azekura binary.

# Sets AZEKURA to the binary's path without building it.
locate_binary() { AZEKURA=${AZEKURA_BIN:-${CARGO_TARGET_DIR:-$ROOT/target}/release/azekura}; }

# build_binary [PROFILE]: builds the binary, as a release unless told `dev`, (or takes AZEKURA_BIN) and sets AZEKURA to
# its path. With `dev` it is built beside the tests, whose dependencies have more features: else most is built anew.
build_binary() {
    local profile=${1:-release} chosen=(--package azekura)
    locate_binary
    if [[ $profile == dev ]]; then
        chosen=(--workspace --tests --bin azekura)
        [[ -n ${AZEKURA_BIN:-} ]] || AZEKURA=${CARGO_TARGET_DIR:-$ROOT/target}/debug/azekura
    fi
    if [[ -n ${AZEKURA_BIN:-} ]]; then
        [[ -x $AZEKURA ]] || die "AZEKURA_BIN=$AZEKURA is not an executable file"
        return 0
    fi
    ensure_tools "${BUILD_TOOLS[@]}"
    ensure_rust
    step "building azekura ($profile; the first time takes some minutes)"
    (cd "$ROOT" && cargo build --profile "$profile" "${chosen[@]}" >&2) || die "the build failed (its messages are above)"
    [[ -x $AZEKURA ]] || die "the build succeeded but there is no $AZEKURA"
}

# For commands that only ask: the binary must be there already.
need_binary() {
    locate_binary
    [[ -x $AZEKURA ]] || die "there is no $AZEKURA yet: run ./dev up first"
}
