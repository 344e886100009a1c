#!/bin/sh
# Installs the programs that some tests drive, where the system's packages can be installed without a question.
# A test whose program is missing is skipped by `make test` and fails in `make check`.
set -u

# What is looked for, and the package of Debian that has it.
table="
tmux                     tmux
node                     nodejs
npm                      npm
prometheus               prometheus
promtool                 prometheus
prometheus-pushgateway   prometheus-pushgateway
prometheus-node-exporter prometheus-node-exporter
ssh                      openssh-client
/usr/sbin/sshd           openssh-server
setpriv                  util-linux
ip                       iproute2
curl                     curl
cc                       gcc
"

lacks() {
    printf '%s' "$table" | while read -r program package; do
        [ -z "$program" ] || command -v "$program" >/dev/null 2>&1 || echo "$package"
    done | sort -u
    for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
        command -v "$name" >/dev/null 2>&1 && return
    done
    echo chromium
}

# The library that messages between hosts may go by; nothing is built against it.
lacks_library() {
    ldconfig -p 2>/dev/null | grep -q "libucp\.so\.0" || echo libucx0
}

packages=$({ lacks_library; lacks; } | tr '\n' ' ')
[ -n "$packages" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing for the tests: $packages"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # several words
    apt-get install -y -qq $packages >/dev/null 2>&1 </dev/null || {
        apt-get update -qq >/dev/null 2>&1
        # One by one: a package that there is not must not keep the others away.
        for package in $packages; do apt-get install -y -qq "$package" >/dev/null 2>&1 </dev/null; done
    }
    packages=$({ lacks_library; lacks; } | tr '\n' ' ')
fi
[ -z "$packages" ] || echo "tests will fail for want of: ${packages}(hint: apt-get install $packages)" >&2
