#!/bin/sh
# Runs all tests with the python $1 and pytest's arguments behind it, in two lanes side by side:
# what computes in one process, politely, and what starts processes and mostly waits for them.
# What the first lane prints comes when the second is done.
set -u
python=$1
shift
computes="tests/unit tests/native tests/hygiene tests/cli tests/fuzz"
starts=
for folder in tests/*/; do
  case " $computes " in
    *" ${folder%/} "*) ;;
    *) if ls "$folder"test_*.py "$folder"*/test_*.py >/dev/null 2>&1; then starts="$starts $folder"; fi ;;
  esac
done
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'kill "$lane" 2>/dev/null; exit 130' INT TERM

# shellcheck disable=SC2086  # lists of folders
nice -n 10 "$python" -m pytest "$@" $computes >"$log" 2>&1 &
lane=$!
# shellcheck disable=SC2086
"$python" -m pytest "$@" $starts
second=$?
wait "$lane"
first=$?
cat "$log"
# 5: the arguments have left no test in this lane.
if [ "$first" = 5 ]; then first=0; fi
if [ "$second" = 5 ]; then second=0; fi
exit $((first > second ? first : second))
