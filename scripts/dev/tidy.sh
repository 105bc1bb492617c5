# shellcheck shell=bash
# The rules of CONTRIBUTING.md that a machine can keep: see tools/tidy/.

help_tidy() {
    cat <<'TEXT'
usage: ./dev tidy [--count]

Says where the project breaks its own rules, a line each: files above 500 lines and functions above 80 (unless
tools/tidy/excuses.txt gives a reason), comments wider than 120 characters, methods outside their type's folder, words that
the glossary has better ones for, files and decisions that documents or comments name and that are not there, commit titles
above 72 characters; and what ruff says of the Python.
  --count   only how many findings each rule has
TEXT
}

run_tidy() {
    python3 -m tools.tidy "$@" && "$RUFF" check --quiet . && "$RUFF" format --check --quiet .
}

command_tidy() {
    ensure_ruff
    cd "$ROOT" || die "cannot enter $ROOT"
    run_tidy "$@"
}
