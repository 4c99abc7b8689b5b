#!/bin/sh
# Build what a release uploads, on any x86-64 or arm64 machine with glibc: the sdist, from it a wheel for
# each architecture, and SHA256SUMS. zig brings the headers and symbols of an old glibc, and musl.
#
#   PYTHON=.../bin/python sh packaging/make_wheels.sh DEST [ARCH...]     the programs of
#   packaging/requirements.txt must be beside PYTHON
#
# The same commit gives the same bytes, whatever the directory (tests/packaging).
set -eu
packaging=$(cd "$(dirname "$0")" && pwd)
source=$(dirname "$packaging")
mkdir -p "$1"
dest=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- x86_64 aarch64
case $PYTHON in */*) tools=$(cd "$(dirname "$PYTHON")" && pwd) ;; *) tools=$(dirname "$(command -v "$PYTHON")") ;; esac
PATH=$tools:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
umask 022

# The time of the commit, or in an unpacked sdist that of its files, which is the same.
: "${SOURCE_DATE_EPOCH:=$(git -C "$source" log -1 --format=%ct 2>/dev/null || stat -c %Y "$source/PKG-INFO")}"
CC=$packaging/zig-cc
PYR_GLIBC=2.17
PYR_PYTHON=$tools/python
export PATH SOURCE_DATE_EPOCH CC PYR_GLIBC PYR_PYTHON
zig=$(python -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__))')

sdist() { # SOURCE DEST
    python -m build --no-isolation --sdist --outdir "$2" "$1" >"$work/sdist.log" 2>&1 ||
        { cat "$work/sdist.log" >&2; exit 1; }
}
rm -f "$dest"/*.whl "$dest"/*.tar.gz "$dest/SHA256SUMS"
sdist "$source" "$work/plain"
tar -xzf "$work"/plain/*.tar.gz -C "$work"
# PyPI shows the README, and knows nothing of the files beside it.
(
    cd "$work"/pyresolve_native-*
    url=$(sed -n 's/^Source = "\(.*\)"/\1/p' pyproject.toml)
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
    sed -i -E "s#\]\(([^):]+)\)#]($url/blob/v$version/\1)#g" README.md
)
sdist "$work"/pyresolve_native-* "$dest"

build() { # ARCH
    mkdir "$work/$1"
    # Not CMake's cross mode: nothing that is built is run, and FindPython refuses an interpreter
    # there (CMP0190). The wheel's tag comes from _PYTHON_HOST_PLATFORM. zig strips.
    PYR_ARCH=$1 _PYTHON_HOST_PLATFORM=linux-$1 python -m pip --disable-pip-version-check wheel \
        --verbose --no-deps --no-build-isolation --wheel-dir "$work/$1" \
        -C build-dir="$work/$1/build" -C install.strip=false \
        -C cmake.define.PYR_STATIC_TARGET="$1-linux-musl" -C cmake.define.PYR_ZIG="$zig" \
        "$work"/pyresolve_native-* &&
        # `auto`: --plat offers only this machine's own architecture.
        auditwheel repair --plat auto --wheel-dir "$dest" "$work/$1"/*.whl &&
        test -f "$dest"/*-cp310-abi3-manylinux2014_"$1".manylinux_2_17_"$1".whl
}
for arch; do
    { build "$arch" >"$work/$arch.log" 2>&1 && touch "$work/$arch.done"; } &
done
wait
for arch; do
    [ -f "$work/$arch.done" ] || { cat "$work/$arch.log" >&2; exit 1; }
    ! grep 'warning:' "$work/$arch.log" >&2 || exit 1
done

abi3audit --strict "$dest"/*.whl
twine check --strict "$dest"/*.whl "$dest"/*.tar.gz
cd "$dest" && sha256sum -- *.whl *.tar.gz | tee SHA256SUMS
