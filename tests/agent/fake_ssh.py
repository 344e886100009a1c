"""Stands in for ssh: runs commands on this host, and forwards Unix sockets, with ssh's options.

Of the hosts only 'here' is there. What it is called with is written to the file FAKE_SSH_LOG.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading


def main(argv: list[str]) -> int:
    with open(os.environ["FAKE_SSH_LOG"], "a", encoding="utf-8") as log:
        log.write(f"{os.getpid()} {argv}\n")
    options, (host, command) = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    assert "BatchMode=yes" in options
    if host == "locked":
        sys.stderr.write("ada@locked: Permission denied (publickey).\n")
        return 255
    if host != "here":
        sys.stderr.write(f"ssh: Could not resolve hostname {host}: Name or service not known\n")
        return 255
    if "-L" in options:
        ours, theirs = options[options.index("-L") + 1].split(":")
        assert max(len(ours), len(theirs)) <= 107
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(ours)
        listening.listen()
        threading.Thread(target=serve, args=(listening, theirs), daemon=True).start()
    sys.stdout.write("Welcome to this host\n")
    sys.stdout.flush()
    return subprocess.run(["sh", "-c", command], check=False).returncode


def serve(listening: socket.socket, theirs: str) -> None:
    while True:
        one, _ = listening.accept()
        other = socket.socket(socket.AF_UNIX)
        other.connect(theirs)
        for source, sink in ((one, other), (other, one)):
            threading.Thread(target=pump, args=(source, sink), daemon=True).start()


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        sink.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
