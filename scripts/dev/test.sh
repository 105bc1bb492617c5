# shellcheck shell=bash
# Everything that must hold before a change lands.

help_test() {
    cat <<'TEXT'
usage: ./dev test [--quick | --long] [--release] [--only STAGE] [-- PYTEST-ARGUMENTS...]

Runs, in this order, and stops at the first that fails:
  shell     shellcheck of this command's own scripts
  tidy      ./dev tidy
  deny      ./dev deny
  format    cargo fmt --check
  lint      cargo clippy and cargo doc, warnings are errors
  unit      cargo test of the whole workspace: unit tests, properties, crash models, simulator
  e2e       pytest: clusters of real processes with fio, qemu, nbdcopy and file systems as clients, once with the
            embedded configuration server and once with etcd; the lab's experiments, each as short as it goes
The end-to-end tests run the program as the unit tests' profile builds it: with debug assertions, and without building
everything a second time. --release has them run what ./dev up and packages build; AZEKURA_BIN=PATH any other.
  --quick       leave out the end-to-end tests that take some ten seconds or more (marked `slow`)
  --long        also those that take a minute each and are much like shorter ones (marked `long`); properties and
                simulations are tried from seeds that nobody knows
  --release     end-to-end tests of the release binary
  --only STAGE  one stage; arguments after -- go to pytest:  ./dev test --only e2e -- -k restart -x
Tests that need what is not here run by commands of their own: ./dev upgrade (an earlier version), ./dev guest (a kernel),
./dev package test (a Debian), ./dev kubernetes test.
File-system tests need root for loop devices and are skipped, by name, for other users.
TEXT
}

stage() {
    local name=$1
    shift
    [[ -z $ONLY_STAGE || $ONLY_STAGE == "$name" ]] || return 0
    local before=$SECONDS
    step "test: $name"
    (cd "$ROOT" && "$@") || die "test stage '$name' failed (its messages are above)"
    say "    $name: passed in $((SECONDS - before)) s"
}

# -x follows the files that `dev` sources, so that all of them are seen as the one program that they are.
run_shellcheck() { shellcheck -x dev .ci/run; }

# The documentation is that of all items, so that links of private ones are checked as well.
run_lint() {
    cargo clippy --workspace --all-targets -- -D warnings &&
        RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items
}

# run_pytest ARGUMENTS...: finding no test is no failure here; sets FOUND where one was found.
run_pytest() {
    local result=0
    AZEKURA_BIN=$AZEKURA PYTHONDONTWRITEBYTECODE=1 "$PYTHON" -m pytest --durations=15 "$@" || result=$?
    ((result == 5)) && return 0
    FOUND=yes
    return "$result"
}

# Most tests wait more than they work, so three files run beside each other; afterwards, those that measure.
run_e2e() {
    FOUND=''
    run_pytest --alone without -n 3 --dist loadfile "$@" && run_pytest --alone only "$@" || return
    [[ -n $FOUND ]] || die "no test was chosen by: $*"
}

command_test() {
    local quick=no long=no profile=dev pytest_arguments=()
    ONLY_STAGE=''
    while (($# > 0)); do
        case $1 in
            --quick) quick=yes ;;
            --long) long=yes ;;
            --release) profile=release ;;
            --only) need_value "$1" $# && ONLY_STAGE=$2 && shift ;;
            --only=*) ONLY_STAGE=${1#*=} ;;
            --)
                shift
                pytest_arguments=("$@")
                break
                ;;
            *) die "test does not know '$1' (./dev test --help)" ;;
        esac
        shift
    done
    case $ONLY_STAGE in
        '' | shell | tidy | deny | format | lint | unit | e2e) ;;
        *) die "there is no test stage '$ONLY_STAGE' (./dev test --help)" ;;
    esac
    ensure_tools "${BUILD_TOOLS[@]}"
    ensure_rust
    if [[ -z $ONLY_STAGE || $ONLY_STAGE == shell || $ONLY_STAGE == e2e ]]; then
        ensure_tools "${CLIENT_TOOLS[@]}" "${ETCD_TOOLS[@]}" "${TEST_TOOLS[@]}" "${BROWSER_TOOLS[@]}" "${TORMENT_TOOLS[@]}"
        ensure_python "${TEST_MODULES[@]}"
    fi
    # After an hour of building it would be late to hear that the disk is too small for the tests.
    [[ -n $ONLY_STAGE ]] || (cd "$ROOT" && "$PYTHON" -m tools.harness.folders "${CARGO_TARGET_DIR:-$ROOT/target}") ||
        die "no room for the tests"
    stage shell run_shellcheck
    if [[ -z $ONLY_STAGE || $ONLY_STAGE == tidy ]]; then
        ensure_ruff
        stage tidy run_tidy
    fi
    if [[ -z $ONLY_STAGE || $ONLY_STAGE == deny ]]; then
        ensure_deny
        stage deny run_deny
    fi
    stage format cargo fmt --all --check
    stage lint run_lint
    # Properties are tried from one fixed seed, and one simulation of each kind runs another, so that a failure is the
    # change's and not the dice's; others: PROPTEST_RNG_SEED=N, SIM_SEED=N, or --long. Many fresh ones: ./dev sim.
    local seeds=("PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-20261121}" "SIM_SEED=${SIM_SEED:-20261130}")
    [[ $long == no ]] || seeds=("PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-$RANDOM$RANDOM}" "SIM_SEED=${SIM_SEED:-$RANDOM$RANDOM}")
    stage unit env "${seeds[@]}" cargo test --workspace
    if [[ -z $ONLY_STAGE || $ONLY_STAGE == e2e ]]; then
        ensure_csi_tools
        ensure_tools "${IMAGE_TOOLS[@]}"
        ensure_helm
        ensure_schemas
        ensure_key_servers
        build_binary "$profile"
        local marks='not long'
        [[ $long == no ]] || marks=''
        [[ $quick == no ]] || marks='not slow and not long'
        pytest_arguments=(-m "$marks" "${pytest_arguments[@]+"${pytest_arguments[@]}"}")
        stage e2e run_e2e "${pytest_arguments[@]+"${pytest_arguments[@]}"}"
    fi
    step "all tests passed"
}
