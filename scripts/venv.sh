#!/bin/sh
# Makes the virtual environment $1 from a bare machine: any Python >= 3.11 and a C++20 compiler.
# Says what is missing, and what to do about it, before anything is downloaded.
set -eu
venv=$1

fail() {
  printf '\n%s\n' "$1" >&2
  shift
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 2
}

python=
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || fail "distdbg needs Python 3.11 or newer; none was found on PATH" \
  "looked for: ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}" \
  "hint: install one, or name it: make PYTHON=/path/to/python3.12"

probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
printf '#include <concepts>\n#include <span>\nint main() { return std::span<int>{}.size() == 0 ? 0 : 1; }\n' >"$probe/probe.cpp"
compiler=
for candidate in ${CXX:-c++ g++ clang++}; do
  if "$candidate" -std=c++20 "$probe/probe.cpp" -o "$probe/probe" 2>>"$probe/log" && "$probe/probe"; then
    compiler=$candidate
    break
  fi
done
[ -n "$compiler" ] || fail "distdbg needs a C++20 compiler (GCC >= 12 or Clang >= 15); none was found that works" \
  "looked for: ${CXX:-c++ g++ clang++}" "$(tail -n 3 "$probe/log" 2>/dev/null)" \
  "hint: on Debian or Ubuntu apt-get install g++; or name one: make CXX=/path/to/g++"

if ! "$python" -m venv --clear "$venv" >"$probe/log" 2>&1; then
  # Debian splits ensurepip off. A pip outside can still fill a venv that has none.
  if ! { "$python" -m venv --clear --without-pip "$venv" &&
    "$python" -m pip --python "$venv/bin/python" install pip; } >>"$probe/log" 2>&1; then
    rm -rf "$venv"
    fail "$("$python" --version) cannot make a virtual environment with pip" \
      "$(tail -n 3 "$probe/log")" \
      "hint: on Debian or Ubuntu apt-get install python3-venv"
  fi
fi
# Older pips know no dependency groups.
"$venv/bin/python" -m pip install -qq --upgrade 'pip>=25.1'
echo "made $venv with $("$python" --version), compiler $compiler"
