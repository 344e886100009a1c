#!/bin/sh
# For the test of the dashboard in a real terminal: installs tmux where the system's packages can be installed
# without a question, and prints ",tmux" where it is there, so that this test may not be skipped.
set -u

if ! command -v tmux >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing tmux by apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    { apt-get install -y -qq tmux || { apt-get update -qq && apt-get install -y -qq tmux; }; } \
        >/dev/null 2>&1 </dev/null || echo "tmux cannot be installed by apt-get" >&2
fi
if command -v tmux >/dev/null 2>&1; then
    printf ',tmux'
else
    echo "there is no tmux: its test is skipped" >&2
fi
