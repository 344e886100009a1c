#!/bin/sh
# Builds wheel and sdist with the venv $1, installs the wheel into a fresh venv, and runs the
# tests against it from outside the checkout, so that only installed files can be imported.
set -eu
tools=$(cd "$1/bin" && pwd)
checkout=$(pwd)
rm -rf dist
"$tools/python" -m build --outdir dist .

outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT
"$tools/python" -m venv "$outside/venv"
pip="$outside/venv/bin/python -m pip --disable-pip-version-check install -qq"
$pip --upgrade 'pip>=25.1'
$pip "$checkout"/dist/*.whl
(cd "$outside" && $pip --group "$checkout/pyproject.toml:test")
cp -R "$checkout/tests" "$checkout/pyproject.toml" "$outside/"
# These are about the checkout, not about what was installed.
cd "$outside"
"$outside/venv/bin/python" -m pytest --ignore=tests/docs --ignore=tests/hygiene/test_checkout.py \
  --ignore=tests/hygiene/test_parity.py
ls -l "$checkout/dist"
