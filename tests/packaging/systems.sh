#!/bin/sh
# The wheel for x86-64 on Debians of other ages: bullseye (glibc 2.31) and sid (the newest glibc). They
# are kept in ~/.cache/pyresolve-tests/systems; remove those to have newer ones.
#
#   PYTHON=.venv/bin/python sh tests/packaging/systems.sh [SUITE...]     wanted: root, debootstrap, and
#   what make wheels has built
set -eu
tests=$(cd "$(dirname "$0")" && pwd)
systems=${PYRESOLVE_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pyresolve-tests}/systems
mkdir -p "$systems"
[ $# -gt 0 ] || set -- bullseye sid

# The Python of bullseye is 3.9: a newer one is built there, of the source that bookworm has.
build_python() { # ROOT
    lists="-oDir::Etc::SourceList=$1/tmp/sources.list -oDir::Etc::SourceParts=/dev/null
        -oDir::State::Lists=$1/tmp/lists -oDir::Cache=$1/tmp/cache -oAPT::Sandbox::User=root"
    mkdir -p "$1/tmp/lists/partial" "$1/tmp/cache/archives/partial"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
        "http://deb.debian.org/debian bookworm main" >"$1/tmp/sources.list"
    # shellcheck disable=SC2086  # several words
    (cd "$1/tmp" && apt-get -qq $lists update && apt-get -qq $lists source --download-only python3.11)
    chroot "$1" sh -ec '
        apt-get -qq update
        apt-get -qq install --yes --no-install-recommends gcc libc6-dev make zlib1g-dev libffi-dev >/dev/null
        cd /tmp
        tar -xf python3.11_*.orig.tar.*
        cd Python-3.11*
        ./configure --quiet --prefix=/opt/python --without-ensurepip --disable-test-modules
        make --silent --jobs=2 >/dev/null 2>&1
        make --silent install >/dev/null 2>&1
        rm -rf /tmp/*'
    "$PYTHON" -m pip --quiet install --target "$1/opt/python/lib/python3.11/site-packages" \
        --only-binary :all: --python-version 3.11 --platform manylinux2014_x86_64 cffi
}

for suite; do
    root=$systems/$suite
    if [ ! -d "$root" ]; then
        rm -rf "$root.new"
        debootstrap --variant=minbase --include=python3-cffi-backend,libstdc++6 "$suite" "$root.new"
        chroot "$root.new" python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
            build_python "$root.new"
        mv "$root.new" "$root"
    fi
    printf '\n== %s: ' "$suite"
    chroot "$root" ldd --version | head -n 1
    PYRESOLVE_TEST_SYSTEM=$root PYRESOLVE_MUST_WORK=1 \
        "$(dirname "$PYTHON")/pytest" -q "$tests/test_systems.py" # not -m, which adds the sources
done
