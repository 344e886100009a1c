#!/bin/sh
# Runs the tests of the bridge with several versions of torch: torch_versions.sh VENV VERSION ...
#
# Each version has an environment of its own, which sees all else of VENV behind its own torch. A version whose
# wheel does not install (no wheel for this Python, no such index) is left out, and says so; one that is older
# than what is supported must end in the error that says so. TORCH_INDEX: where wheels come from.
set -u
venv=$1
shift
index=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}
base=$(cd "$venv" && pwd)
packages=$("$base/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
ran=0
failed=""
for version in "$@"; do
  own="$base/torch-$version"
  if [ ! -e "$own/ready" ]; then
    "$base/bin/python" -m venv --clear "$own" || exit 1
    if ! "$own/bin/python" -m pip --disable-pip-version-check install -qq "numpy<3" "torch==$version" \
        --extra-index-url "$index"; then
      echo "torch $version: no wheel installs here; left out"
      rm -rf "$own"
      continue
    fi
    # Behind its own packages: what is here comes first.
    own_packages=$("$own/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "import site; site.addsitedir('$packages')" > "$own_packages/zz_behind.pth"
    touch "$own/ready"
  fi
  ran=$((ran + 1))
  echo "torch $version"
  case $("$own/bin/python" -c 'import torch; print(*torch.__version__.split(".")[:2], sep="")') in
    1?|1??|20|21|22|23)
      "$own/bin/python" -m pytest -q tests/torch/versions/too_old.py || failed="$failed $version" ;;
    24|25)
      "$own/bin/python" -m pytest -q --run-slow tests/torch/versions/too_old_to_watch.py \
        tests/torch/test_distdbg_backend.py || failed="$failed $version" ;;
    *)
      "$own/bin/python" -m pytest -q --run-slow tests/torch/test_distdbg_backend.py \
        tests/torch/test_examples.py tests/torch/tap || failed="$failed $version" ;;
  esac
done
[ "$ran" -gt 0 ] || { echo "no version of torch was there to test"; exit 1; }
[ -z "$failed" ] || { echo "failed with torch$failed"; exit 1; }
