#!/bin/sh
# For the tests of trace files: installs nodejs where the system's packages can be installed without a
# question, and prints ",node" where it is there, so that these tests may not be skipped.
set -u

if ! command -v node >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing nodejs by apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    { apt-get install -y -qq nodejs || { apt-get update -qq && apt-get install -y -qq nodejs; }; } \
        >/dev/null 2>&1 </dev/null || echo "nodejs cannot be installed by apt-get" >&2
fi
if command -v node >/dev/null 2>&1; then
    printf ',node'
else
    echo "there is no nodejs: its tests are skipped" >&2
fi
