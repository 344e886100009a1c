#!/bin/sh
# For the tests of metrics and rules: installs prometheus where the system's packages can be installed without a
# question, and prints ",prometheus" where it is there, so that these tests may not be skipped.
set -u

if ! command -v promtool >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing prometheus by apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    { apt-get install -y -qq prometheus || { apt-get update -qq && apt-get install -y -qq prometheus; }; } \
        >/dev/null 2>&1 </dev/null || echo "prometheus cannot be installed by apt-get" >&2
fi
if command -v promtool >/dev/null 2>&1; then
    printf ',prometheus'
else
    echo "there is no prometheus: its tests are skipped" >&2
fi
