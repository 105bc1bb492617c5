# shellcheck shell=bash
# A package for Debian and Ubuntu.

help_package() {
    cat <<'TEXT'
usage: ./dev package [test [-- PYTEST-ARGUMENTS...]]

Makes target/package/azekura_VERSION_ARCHITECTURE.deb: the program, its service for systemd, the file with its options,
manual pages and completions. Made twice of the same commit it is the same, byte for byte.

  test   installs it on a small Debian that boots in a container of systemd (root; debootstrap, systemd-container), and
         uses it there as its operator would; then three machines become a cluster (tests/machine_*.py): some minutes
TEXT
}

PACKAGE_TOOLS=(dpkg-deb:dpkg objdump:binutils strip:binutils gzip:gzip)
PACKAGE_TEST_TOOLS=(debootstrap:debootstrap systemd-nspawn:systemd-container ip:iproute2 nsenter:util-linux)

# install_file MODE FROM TO: a file of the package.
install_file() {
    install -D -m "$1" "$2" "$PACKAGE_TREE/$3"
}

# The oldest C library that has what the program wants.
needed_glibc() {
    objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1 | sed 's/GLIBC_//'
}

# build_package: sets PACKAGE to the file.
build_package() {
    ensure_tools "${PACKAGE_TOOLS[@]}"
    build_binary
    local folder=$ROOT/target/package version architecture
    version=$("$AZEKURA" version --json | sed -n 's/.*"version": *"\([^"]*\)".*/\1/p')
    [[ -n $version ]] || die "$AZEKURA tells no version"
    architecture=$(dpkg --print-architecture)
    PACKAGE_TREE=$folder/tree
    PACKAGE=$folder/azekura_${version}_$architecture.deb
    rm -rf "$folder"
    mkdir -p "$PACKAGE_TREE/DEBIAN" "$folder/made/man"

    strip -o "$folder/made/azekura" "$AZEKURA"
    "$AZEKURA" config example >"$folder/made/config.toml"
    "$AZEKURA" manual "$folder/made/man"
    install_file 0755 "$folder/made/azekura" usr/bin/azekura
    install_file 0644 "$folder/made/config.toml" etc/azekura/config.toml
    install_file 0644 "$ROOT/packaging/azekura.service" lib/systemd/system/azekura.service
    install_file 0644 "$ROOT/packaging/azekura-attach@.service" lib/systemd/system/azekura-attach@.service
    install_file 0644 "$ROOT/packaging/sysusers.conf" usr/lib/sysusers.d/azekura.conf
    install_file 0644 "$ROOT/LICENSE" usr/share/doc/azekura/copyright
    local page shell
    for page in "$folder/made/man"/*.1; do
        gzip -9n "$page"
        install_file 0644 "$page.gz" "usr/share/man/man1/$(basename "$page").gz"
    done
    for shell in bash:bash-completion/completions/azekura zsh:zsh/vendor-completions/_azekura \
        fish:fish/vendor_completions.d/azekura.fish; do
        "$AZEKURA" completion "${shell%%:*}" >"$folder/made/completion"
        install_file 0644 "$folder/made/completion" "usr/share/${shell#*:}"
    done

    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" \
        -e "s/@GLIBC@/$(needed_glibc "$AZEKURA")/" \
        -e "s/@SIZE_KIB@/$(du -sk --apparent-size "$PACKAGE_TREE" | cut -f 1)/" \
        "$ROOT/packaging/debian/control.in" >"$PACKAGE_TREE/DEBIAN/control"
    echo /etc/azekura/config.toml >"$PACKAGE_TREE/DEBIAN/conffiles"
    install -m 0755 "$ROOT"/packaging/debian/{postinst,prerm,postrm} "$PACKAGE_TREE/DEBIAN/"
    # The same input gives the same bytes: times are those of the commit, owners are root.
    local epoch
    epoch=$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null) || epoch=0
    SOURCE_DATE_EPOCH=$epoch dpkg-deb --root-owner-group --build "$PACKAGE_TREE" "$PACKAGE" >/dev/null ||
        die "dpkg-deb could not make $PACKAGE"
}

command_package() {
    local what=${1:-}
    [[ -z $what || $what == test ]] || die "there is no './dev package $what' (./dev package --help)"
    build_package
    step "$PACKAGE: $(($(stat -c %s "$PACKAGE") >> 20)) MiB"
    [[ $what == test ]] || return 0
    shift
    [[ ${1:-} != -- ]] || shift
    ensure_tools "${PACKAGE_TEST_TOOLS[@]}"
    ensure_python pytest:python3-pytest
    cd "$ROOT" || die "cannot enter $ROOT"
    AZEKURA_PACKAGE=$PACKAGE PYTHONDONTWRITEBYTECODE=1 exec "$PYTHON" -m pytest tests/machine_package.py tests/machine_cluster.py "$@"
}
