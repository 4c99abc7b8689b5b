#!/bin/sh
# The native code under AddressSanitizer and UndefinedBehaviorSanitizer: the fuzzers, then the tests
# against a sanitized build. Fails on any report of a sanitizer, whichever process it is in.
#
#   PYTHON=.venv/bin/python tests/native/asan.sh [SECONDS]     SECONDS for each fuzzer, default 20
#
# PYTHON needs pip and what the tests need. What cannot be built in that environment is built in an
# isolated one, which takes the package registry.
set -eu

python=$(command -v "${PYTHON:-python3}")
case $python in /*) ;; *) python=$PWD/$python ;; esac
seconds=${1:-20}
repository=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/reports" "$work/site"
chmod 711 "$work" # some tests start the helper as another user

say() { printf '\n== %s\n' "$*"; }

cc=${CC:-gcc}
flags="-std=c11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -fsanitize=address,undefined
       -fno-sanitize-recover=all -fno-omit-frame-pointer"
fuzzer() { # TOPIC, and what of native/ it is about
    say "fuzz_$1 for $seconds s"
    # shellcheck disable=SC2086  # the flags are several words
    (cd "$repository/native" && name=fuzz_$1 && shift &&
        "$cc" $flags -iquote . "$@" "$repository/tests/native/$name.c" -o "$work/$name")
}
fuzzer elf elf.c
fuzzer wire probe.c
fuzzer classify classify.c fault.c loader_text.c status.c line.c records.c elf.c
fuzzer loader_text loader_text.c
"$work/fuzz_elf" "$seconds" "$work/fuzz_wire" "$("$cc" -print-file-name=libgcc_s.so.1)" &
fuzz_elf=$!
"$work/fuzz_wire" "$seconds" &
fuzz_wire=$!
"$work/fuzz_classify" "$seconds"
"$work/fuzz_loader_text" "$seconds"
wait $fuzz_wire && wait $fuzz_elf

say "build"
# The helper starts in an environment that the tests choose, so that its options are in itself. It
# has the sanitizers linked in: as libraries they would have to come before every preload. Targets
# must die as they would without; what the sanitizers find goes into a file for each process, since
# the helper's stderr is what is being tested.
cat >"$work/options.c" <<EOF
#define OPTION __attribute__((visibility("default"), used)) const char *
OPTION __asan_default_options(void);
OPTION __asan_default_options(void) {
    return "detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0:"
           "handle_sigfpe=0:use_sigaltstack=0:log_path=$work/reports/asan";
}
OPTION __ubsan_default_options(void);
OPTION __ubsan_default_options(void) { return "print_stacktrace=1:log_path=$work/reports/ubsan"; }
EOF
"$cc" -fPIC -c "$work/options.c" -o "$work/options.o"
isolation=
if "$python" -c 'import cffi, cmake, ninja, scikit_build_core' 2>/dev/null; then
    isolation=--no-build-isolation
    PATH=$(dirname "$python"):$PATH
    export PATH
fi
# shellcheck disable=SC2086  # empty, or one word
"$python" -m pip install --quiet --disable-pip-version-check --no-deps $isolation \
    --target "$work/site" -Cbuild-dir="$work/build" -Ccmake.define.PYR_SANITIZE=ON \
    -Ccmake.define.CMAKE_C_COMPILER="$(command -v "$cc")" \
    -Ccmake.define.CMAKE_C_FLAGS=-fno-sanitize-recover=all \
    -Ccmake.define.CMAKE_EXE_LINKER_FLAGS="$work/options.o -static-libasan -static-libubsan" \
    "$repository"
# The stub is opened by the helper, which has its sanitizer inside: it must not bring another.
for directory in pyresolve/_bin libexec/pyresolve; do
    "$cc" -shared -fPIC -Wl,-soname,libcuda.so.1 "$repository/native/stub_driver.c" \
        -o "$work/site/$directory/pyresolve-stub-driver.so"
done
# An editable install of the package would come before this one.
cat >"$work/site/sitecustomize.py" <<'EOF'
import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]
EOF

say "tests"
common=detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=1:verify_asan_link_order=0
LD_PRELOAD=$("$cc" -print-file-name=libasan.so):$("$cc" -print-file-name=libubsan.so)
ASAN_OPTIONS=$common:handle_segv=0:handle_sigbus=0:handle_abort=0:log_path=$work/reports/asan
UBSAN_OPTIONS=print_stacktrace=1:log_path=$work/reports/ubsan
PYTHONPATH=$work/site
PYRESOLVE_TEST_PROBE=$work/site/bin/pyresolve-probe
export PYTHONPATH PYRESOLVE_TEST_PROBE
# Away from the repository, where `import pyresolve` would mean the sources.
cd "$work"
sanitized="env LD_PRELOAD=$LD_PRELOAD ASAN_OPTIONS=$ASAN_OPTIONS UBSAN_OPTIONS=$UBSAN_OPTIONS"
unset LD_PRELOAD ASAN_OPTIONS UBSAN_OPTIONS
$sanitized "$python" - "$work/site" <<'EOF'
import sys
from pyresolve import _native
from pyresolve._native import lib

assert _native.__file__.startswith(sys.argv[1]), _native.__file__
assert any("libasan" in line for line in open("/proc/self/maps")), "no sanitizer"
EOF
status=0
for tests in disk/test_elf process/test_helper check/test_check check/test_probe_program check/test_lines; do
    $sanitized "$python" -m pytest -q -p no:cacheprovider -c "$repository/pyproject.toml" \
        --rootdir "$repository" ${PYTEST_OPTIONS-} "$repository/tests/$tests.py" || status=1
done

# Damaged libraries do to a sanitized process what they would not do to another: on the package that
# is installed.
if [ "${PYRESOLVE_TEST_FULL-1}" = 1 ]; then
    say "all mutants, and all system calls that fail (PYRESOLVE_TEST_FULL=0 leaves them out)"
    for tests in check/test_oracle process/test_injection; do
        env -u PYTHONPATH -u PYRESOLVE_TEST_PROBE PYRESOLVE_TEST_FULL=1 "$python" -m pytest -q -s \
            -p no:cacheprovider -c "$repository/pyproject.toml" --rootdir "$repository" \
            "$repository/tests/$tests.py" || status=1
    done
fi

if [ -n "$(ls "$work/reports")" ]; then
    say "reports"
    cat "$work"/reports/*
    status=1
fi
say "$([ $status = 0 ] && echo clean || echo failed)"
exit $status
