#!/bin/sh
# Runs all tests with the python $1 and pytest's arguments behind it, in three lanes side by side: what computes
# in one process and then what draws and is typed at, and what compares with others, politely; and what starts
# processes and waits for them. What the other lanes print comes when the last one is done.
#
# Few tests that failed beside the others are run once more by themselves: what fails again is a failure, and
# what does not is named at the end. It has raced with something, and is worth a look: some of those were bugs.
set -u
python=$1
shift
computes="tests/unit tests/native tests/hygiene tests/cli tests/fuzz"
compares="tests/torch tests/mpi tests/docs tests/chromium tests/programs tests/benchmarks tests/metrics tests/otlp tests/perfetto tests/dashboards tests/prometheus"
observes="tests/tui tests/debugger"
most_again=5
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

# Runs pytest as lane $1 with a priority and folders; its code is kept. 5: its arguments have left no test.
lane() {
  number=$1 priority=$2 folders=$3
  shift 3
  # shellcheck disable=SC2086  # lists of folders
  nice -n "$priority" "$python" -m pytest -o cache_dir="$logs/cache$number" "$@" $folders 2>&1
  its=$?
  [ "$its" = 5 ] && its=0
  echo "$its" >"$logs/$number.code"
  echo "$folders" >"$logs/$number.folders"
}

(
  lane 1 10 "$computes" "$@" >"$logs/1"
  lane 3 2 "$observes" "$@" >"$logs/3"
) &
lane 2 5 "$compares" "$@" >"$logs/2" &
lane 0 0 "$starts" "$@" | tee "$logs/0"
wait
cat "$logs"/[1-3]

code=0
for number in 0 1 2 3; do
  its=$(cat "$logs/$number.code")
  [ "$its" = 0 ] && continue
  folders=$(cat "$logs/$number.folders")
  count=$(grep -cE '^(FAILED|ERROR) tests/' "$logs/$number")
  if [ "$its" = 1 ] && [ "$count" -le "$most_again" ]; then
    grep -hE '^(FAILED|ERROR) tests/' "$logs/$number" | sed 's/^/beside others: /' >>"$logs/again"
    # shellcheck disable=SC2086
    "$python" -m pytest -o cache_dir="$logs/cache$number" --last-failed --last-failed-no-failures none \
      "$@" $folders 2>&1
    [ $? = 0 ] && continue
  fi
  code=1
  echo "FAILED in $folders, with exit code $its"
  grep -hE '^(FAILED|ERROR) tests/' "$logs/$number"
done
[ -e "$logs/again" ] && cat "$logs/again"
grep -hE '^=+ .* in [0-9.]+s' "$logs"/[0-3]
exit "$code"
