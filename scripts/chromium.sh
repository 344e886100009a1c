#!/bin/sh
# For the tests of HTML pages: installs Chromium where the system's packages can be installed without a
# question, and prints ",chromium" where it is there, so that these tests may not be skipped.
set -u

is_there() {
    for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
        command -v "$name" >/dev/null 2>&1 && return 0
    done
    return 1
}

if ! is_there && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing chromium by apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    { apt-get install -y -qq chromium || { apt-get update -qq && apt-get install -y -qq chromium; }; } \
        >/dev/null 2>&1 </dev/null || echo "chromium cannot be installed by apt-get" >&2
fi
if is_there; then
    printf ',chromium'
else
    echo "there is no chromium: its tests are skipped" >&2
fi
