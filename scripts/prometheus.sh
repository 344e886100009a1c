#!/bin/sh
# For the tests of metrics and rules: installs Prometheus, its Pushgateway and its node_exporter where the system's
# packages can be installed without a question, and prints ",prometheus" where they are there, so that these tests may
# not be skipped.
set -u

programs="promtool prometheus prometheus-pushgateway prometheus-node-exporter"
packages="prometheus prometheus-pushgateway prometheus-node-exporter"

are_there() {
    for program in $programs; do
        command -v "$program" >/dev/null 2>&1 || return 1
    done
}

if ! are_there && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing $packages by apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # several words
    { apt-get install -y -qq $packages || { apt-get update -qq && apt-get install -y -qq $packages; }; } \
        >/dev/null 2>&1 </dev/null || echo "$packages cannot be installed by apt-get" >&2
fi
if are_there; then
    printf ',prometheus'
else
    echo "there is no Prometheus with its Pushgateway and node_exporter: tests with them are skipped" >&2
fi
