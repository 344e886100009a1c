#!/bin/sh
# Makes the targets $1 and the targets $2 at the same time; of $1 all is printed at the end.
set -eu
make=${MAKE:-make}
mkdir -p build
log=$(mktemp build/side-XXXXXX)
beside=
end() {
  [ -z "$beside" ] || kill "$beside" 2>/dev/null || true
  rm -f "$log"
}
trap end EXIT
trap 'exit 130' INT TERM

# shellcheck disable=SC2086 # several targets
$make --no-print-directory $1 >"$log" 2>&1 &
beside=$!
# shellcheck disable=SC2086
$make --no-print-directory $2
status=0
wait "$beside" || status=$?
beside=
cat "$log"
exit "$status"
