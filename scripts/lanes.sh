#!/bin/sh
# Runs all tests with the python $1 and pytest's arguments behind it, in three lanes side by side: what computes
# in one process and then what draws and is typed at, and what compares with others, politely; and what starts
# processes and waits for them. What the other lanes print comes when the last one is done, and at the very end,
# where a reader of a log looks first, what failed in any of them.
set -u
python=$1
shift
computes="tests/unit tests/native tests/hygiene tests/cli tests/fuzz"
compares="tests/torch tests/mpi tests/docs tests/chromium tests/programs tests/benchmarks tests/metrics tests/otlp tests/perfetto tests/dashboards tests/prometheus"
observes="tests/tui tests/debugger"
starts=
for folder in tests/*/; do
  case " $computes $compares $observes " in
    *" ${folder%/} "*) ;;
    *) if ls "$folder"test_*.py >/dev/null 2>&1; then starts="$starts $folder"; fi ;;
  esac
done
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
trap 'trap - INT TERM; kill 0; exit 130' INT TERM

# Runs pytest with its priority and folders, what it prints into a file. 5: its arguments have left no test.
lane() {
  out=$1 priority=$2 folders=$3
  shift 3
  # shellcheck disable=SC2086  # lists of folders
  nice -n "$priority" "$python" -m pytest "$@" $folders >"$out" 2>&1
  its=$?
  [ "$its" = 5 ] || return "$its"
}

(
  lane "$logs/1" 10 "$computes" "$@"
  first=$?
  lane "$logs/3" 2 "$observes" "$@"
  second=$?
  [ "$first" != 0 ] && exit "$first"
  exit "$second"
) &
one=$!
lane "$logs/2" 5 "$compares" "$@" &
two=$!
# shellcheck disable=SC2086
{ "$python" -m pytest "$@" $starts 2>&1; echo $? >"$logs/code"; } | tee "$logs/0"
code=$(cat "$logs/code")
[ "$code" = 5 ] && code=0
[ "$code" = 0 ] || echo "FAILED the tests that start processes, with exit code $code" >"$logs/ends"
for process in "$one" "$two"; do
  wait "$process"
  its=$?
  [ "$its" = 0 ] && continue
  code=$its
  [ "$process" = "$two" ] && what=$compares || what="$computes $observes"
  echo "FAILED some of $what, with exit code $its" >>"$logs/ends"
done
cat "$logs"/[1-9]
[ "$code" = 0 ] || grep -hE '^(FAILED|ERROR) (tests|the|some)|^=+ .* in [0-9.]+s' "$logs"/[0-9] "$logs/ends"
exit "$code"
