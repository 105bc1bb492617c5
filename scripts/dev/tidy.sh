# shellcheck shell=bash
# The rules of CONTRIBUTING.md that a machine can keep: see tools/tidy/.

help_tidy() {
    cat <<'TEXT'
usage: ./dev tidy [--count] [--draw]

Says where the project breaks its own rules, a line each, and what ruff says of the Python:
  lengths     files above 500 lines, functions above 80
  comments    wider than 120 characters
  methods     outside their type's folder
  circles     more than four files of a crate that use each other in a circle
  fields      more than twelve fields of a type that its whole crate can change
  words       that the glossary has better ones for
  documents   files and decisions that documents or comments name and that are not there
  rooms       crates and their uses that docs/rooms.svg shows otherwise than their manifests, or that the table of
              crates in ARCHITECTURE.md lacks; and a crate without I/O that uses one with I/O
  imports     of the Python folders that are not meant to use each other
  commits     titles above 72 characters
What has to be longer or more stands in tools/tidy/excuses.txt with its reason; a line there that is not needed any more
is a finding, too.
  --count   only how many findings each rule has
  --draw    draws docs/rooms.svg anew first
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
