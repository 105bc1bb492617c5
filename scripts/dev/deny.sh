# shellcheck shell=bash
# What the crates that are not ours must keep to: see deny.toml.

help_deny() {
    cat <<'TEXT'
usage: ./dev deny [--advisories | --sbom FILE]

Compares the crates in Cargo.lock with deny.toml: their licences, where they come from, crates that are forbidden or there
in two versions, and what RustSec's database of advisories says of them. Where that database can't be had, the command
says so and passes all the same.
  --advisories  only the advisories, and without the database the command fails
  --sbom FILE   instead, write what the program is made of as a list in CycloneDX's form (JSON), for other tools
TEXT
}

# Git never asks a person here, and gives up on a network that swallows what is sent.
deny() {
    GIT_TERMINAL_PROMPT=0 GIT_HTTP_LOW_SPEED_LIMIT=1000 GIT_HTTP_LOW_SPEED_TIME=20 timeout 300 "$DENY" --log-level error "$@"
}

run_deny() {
    deny check licenses sources bans || return 1
    local place
    place=$(mktemp -d)
    if deny fetch db >"$place/fetch" 2>&1; then
        rm -r "$place"
        deny check advisories
        return
    fi
    cat >&2 <<TEXT
dev: warning: ADVISORIES WERE NOT CHECKED: RustSec's database can't be had from this machine:
dev: warning:     $(grep -e '^fatal' -e 'ERROR' "$place/fetch" | tail -n 1 | cut -c 1-200)
dev: warning: Whether a crate in Cargo.lock has a known hole is unknown until ./dev deny --advisories passes on a machine
dev: warning: that reaches github.com. docs/security.md ("What it is made of") says when that was last so.
TEXT
    rm -r "$place"
}

run_advisories() { deny check advisories; }

# run_sbom FILE: what is built into the program, with versions, licences and checksums; tests' crates are not.
run_sbom() {
    local written=$ROOT/crates/azekura/azekura.cdx.json
    cargo cyclonedx --manifest-path "$ROOT/crates/azekura/Cargo.toml" --format json --spec-version 1.5 --target all \
        --override-filename azekura.cdx || return 1
    # Our own crates are named by where they lie, which is of no use elsewhere.
    sed "s|file://$ROOT/|file:///|g" "$written" >"$1" || return 1
    find "$ROOT/crates" -name azekura.cdx.json -delete
    say "$1 lists $(grep -c '"type": "library"' "$1") crates"
}

command_deny() {
    local what=run_deny sbom=''
    while (($# > 0)); do
        case $1 in
            --advisories) what=run_advisories ;;
            --sbom) need_value "$1" $# && sbom=$2 && shift ;;
            *) die "deny does not know '$1' (./dev deny --help)" ;;
        esac
        shift
    done
    ensure_rust
    if [[ -n $sbom ]]; then
        [[ $sbom == /* ]] || sbom=$PWD/$sbom
        ensure_cyclonedx
        run_sbom "$sbom" || die "the list could not be made (messages above)"
        return
    fi
    ensure_deny
    cd "$ROOT" || die "cannot enter $ROOT"
    "$what"
}
