#!/bin/sh
# Runs all tests with the python $1 and pytest's arguments behind it, in lanes side by side: what computes
# in one process, what compares with others, and what observes and draws, politely; and what starts
# processes and waits for them. What a lane prints comes when the last one is done.
set -u
python=$1
shift
computes="tests/unit tests/native tests/hygiene tests/cli tests/fuzz"
compares="tests/torch tests/mpi tests/docs tests/chromium tests/programs tests/benchmarks"
observes="tests/tui tests/debugger tests/metrics tests/otlp tests/perfetto tests/dashboards tests/prometheus"
starts=
for folder in tests/*/; do
  case " $computes $compares $observes " in
    *" ${folder%/} "*) ;;
    *) if ls "$folder"test_*.py >/dev/null 2>&1; then starts="$starts $folder"; fi ;;
  esac
done
logs=$(mktemp -d)
lanes=
trap 'rm -rf "$logs"' EXIT
trap 'kill $lanes 2>/dev/null; exit 130' INT TERM

# shellcheck disable=SC2086  # lists of folders
nice -n 10 "$python" -m pytest "$@" $computes >"$logs/1" 2>&1 &
lanes="$lanes $!"
# shellcheck disable=SC2086
nice -n 5 "$python" -m pytest "$@" $compares >"$logs/2" 2>&1 &
lanes="$lanes $!"
# shellcheck disable=SC2086
nice -n 2 "$python" -m pytest "$@" $observes >"$logs/3" 2>&1 &
lanes="$lanes $!"
# shellcheck disable=SC2086
"$python" -m pytest "$@" $starts
code=$?
# 5: the arguments have left no test in this lane.
if [ "$code" = 5 ]; then code=0; fi
for lane in $lanes; do
  wait "$lane"
  its=$?
  if [ "$its" != 0 ] && [ "$its" != 5 ]; then code=$its; fi
done
cat "$logs"/*
exit "$code"
