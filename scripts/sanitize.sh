#!/bin/sh
# Builds native/tests with the sanitizer $2 (tools from the venv $1) and runs them, or only $3 with the
# arguments that follow.
set -eu
tools=$(cd "$1/bin" && pwd)
sanitizer=$2
build=build/sanitize-$(printf %s "$sanitizer" | tr , -)
PATH=$tools:$PATH
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

# -O1 -g1: stacks have their lines, and it compiles in half the time of -O2 -g.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDISTDBG_BINDINGS=OFF \
  "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1 -DNDEBUG" -DDISTDBG_NATIVE_TESTS=ON -DDISTDBG_WERROR=ON "-DDISTDBG_SANITIZE=$sanitizer" >/dev/null
if [ $# -gt 2 ]; then
  program=$3
  shift 3
  cmake --build "$build" --target "$program" -- --quiet
  exec "$build/$program" "$@"
fi
cmake --build "$build" -- --quiet
# --no-tests=error: no test at all must not look like success.
ctest --test-dir "$build" --parallel "$(nproc)" --output-on-failure --no-tests=error
