# shellcheck shell=bash
# From one version to the next: real nodes of two versions.

help_upgrade() {
    cat <<'TEXT'
usage: ./dev upgrade [--from REF | --before BINARY] [--json FILE] [--record] [-- PYTEST-ARGUMENTS...]

A cluster of three nodes of an earlier version becomes one of this version, node by node, while clients write and read over
NBD, iSCSI and NVMe/TCP and know what was promised to them (tests/upgrade_*.py): with volumes of every kind, with commands of
both versions, with nodes killed halfway and with leaders of both versions, once with the embedded configuration server and
once with etcd. Then nodes go back, before and after something was kept in a new format: that works, or is refused.
The earlier version is built from this repository's history, in a git worktree below target/upgrade, with the same target folder, so that
only the project's own crates are compiled twice; what was built is kept there by its commit.
  --from REF       a tag, a branch or a commit. Without it: the last release's tag (v…) before this commit, and where there
                   is none the commit that packaging/previous-version names
  --before BINARY  an azekura binary of the earlier version, instead of building one
  --json FILE      what was measured: how long writes waited at each restart, and how long the cluster took to be healthy
  --record         writes that into docs/reliability.md
AZEKURA_BIN=PATH is the later version, instead of building this one. Arguments after -- go to pytest: -- -k kill -x
Takes about ten minutes with both binaries there. Not part of ./dev test, which does not build two versions.
TEXT
}

# earlier_ref: prints the tag or commit that is upgraded from, unless one is named.
earlier_ref() {
    git -C "$ROOT" describe --tags --abbrev=0 --match 'v[0-9]*' 'HEAD^' 2>/dev/null && return 0
    sed -n '/^[^#]/{p;q}' "$ROOT/packaging/previous-version"
}

# build_earlier REF: sets EARLIER to the binary of that version, and EARLIER_NAME to its commit.
build_earlier() {
    local commit source=$ROOT/target/upgrade/source
    commit=$(git -C "$ROOT" rev-parse --verify --quiet --short=8 "$1^{commit}") ||
        die "the repository has no '$1' to upgrade from. In a shallow clone: git fetch --unshallow --tags. Or name another one with --from REF, or a binary with --before"
    EARLIER_NAME=$commit
    EARLIER=$ROOT/target/upgrade/azekura-$commit
    [[ ! -x $EARLIER ]] || return 0
    ensure_tools "${BUILD_TOOLS[@]}"
    ensure_rust
    step "building azekura of $commit (release; its own crates alone where the target folder has the others)"
    mkdir -p "$ROOT/target/upgrade"
    git -C "$ROOT" worktree prune
    if [[ -e $source/.git ]]; then
        git -C "$source" checkout --quiet --force --detach "$commit" || die "git could not check out $commit in $source"
    else
        git -C "$ROOT" worktree add --quiet --force --detach "$source" "$commit" || die "git could not make the worktree $source"
    fi
    local folder=${CARGO_TARGET_DIR:-$ROOT/target}
    (cd "$source" && CARGO_TARGET_DIR=$folder cargo build --release --package azekura >&2) ||
        die "the build of $commit failed (its messages are above)"
    # The present version's binary takes this place when it is built.
    cp "$folder/release/azekura" "$EARLIER.new" || die "the build succeeded but there is no $folder/release/azekura"
    mv "$EARLIER.new" "$EARLIER"
}

command_upgrade() {
    local from='' json='' record=no arguments=()
    EARLIER='' EARLIER_NAME=''
    while (($# > 0)); do
        case $1 in
            --from) need_value "$1" $# && from=$2 && shift ;;
            --before) need_value "$1" $# && EARLIER=$2 && shift ;;
            --json) need_value "$1" $# && json=$2 && shift ;;
            --record) record=yes ;;
            --)
                shift
                arguments=("$@")
                break
                ;;
            *) die "upgrade does not know '$1' (./dev upgrade --help)" ;;
        esac
        shift
    done
    [[ -z $from || -z $EARLIER ]] || die "--from and --before both say which version is the earlier one: give one of them"
    ensure_tools "${CLIENT_TOOLS[@]}" "${ETCD_TOOLS[@]}"
    ensure_python pytest:python3-pytest
    if [[ -n $EARLIER ]]; then
        [[ -x $EARLIER ]] || die "--before $EARLIER is not an executable file"
        EARLIER=$(realpath "$EARLIER") EARLIER_NAME=$(basename "$EARLIER")
    else
        build_earlier "${from:-$(earlier_ref)}"
    fi
    build_binary
    local notes result=0
    notes=$(mktemp)
    step "from $EARLIER_NAME to $AZEKURA"
    cd "$ROOT" || die "cannot enter $ROOT"
    AZEKURA_BEFORE=$EARLIER AZEKURA_BIN=$AZEKURA AZEKURA_UPGRADE_NOTES=$notes PYTHONDONTWRITEBYTECODE=1 \
        "$PYTHON" -m pytest tests/upgrade_*.py "${arguments[@]+"${arguments[@]}"}" || result=$?
    local told=(--before "$EARLIER_NAME" --notes "$notes")
    [[ -z $json ]] || told+=(--json "$json")
    # What failed is no record.
    [[ $record == no || $result != 0 ]] || told+=(--record)
    AZEKURA_BIN=$AZEKURA "$PYTHON" -m tools.upgrade "${told[@]}" || result=1
    rm -f "$notes"
    return "$result"
}
