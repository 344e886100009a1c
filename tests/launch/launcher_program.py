"""A launcher that does nothing but keep difficult children; the tests end it in various ways.

    launcher_program.py [tty]      with a tty: it becomes the controlling terminal

It says "ready <warden's pid>" when all are running, and "lost" when it was told of the warden's end.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress

from distdbg.launch.warden import Warden, WardenLost

LINGER_S = 0.3
DIFFICULT = {
    "plain": "echo up; exec sleep 300",
    "deaf": "trap '' TERM INT HUP QUIT; echo up; while :; do sleep 300; done",
    "stopped": "echo up; kill -STOP $$; sleep 300",
    "with a family": """
        sleep 300 &
        setsid sleep 300 &
        (setsid sh -c 'sleep 300; :' &)
        (trap '' TERM HUP INT; setsid sh -c 'while :; do sleep 300; done' &)
        setsid sleep 300 & kill -STOP $!
        echo up
        sleep 300; :""",
    "lingering": """
        trap 'rm -f "$LINGERING_FILE"; exit' TERM
        test -n "$LINGERING_FILE" && touch "$LINGERING_FILE"
        sleep 300 & echo up; wait""",
    "lingering and deaf": "trap '' TERM; (setsid sleep 300 &) ; echo up; while :; do sleep 300; done",
    # The first of the family is gone; the others belong to nobody but the warden.
    "orphaning": "(setsid sleep 300 &) ; (setsid sh -c 'sleep 300; :' &) ; echo up",
}


def main() -> None:
    if len(sys.argv) > 1:
        os.open(sys.argv[1], os.O_RDWR)  # of the leader of a session without one: its terminal
    warden = Warden.start()
    reader, writer = os.pipe()
    for name, script in DIFFICULT.items():
        warden.spawn(
            name,
            ["sh", "-c", script],
            os.environ,
            stdin="null",
            stdout_fd=writer,
            lingers_s=LINGER_S if name.startswith("lingering") else 0.0,
        )
    os.close(writer)
    with suppress(KeyboardInterrupt), warden:
        try:
            wait_until_up(warden, reader)
            print("ready", warden.pid, flush=True)
            while True:
                warden.events(10.0)
        except WardenLost:
            print("lost", flush=True)
            sys.stdin.read()  # alive until the test has looked


def wait_until_up(warden: Warden, reader: int) -> None:
    lines = b""
    while lines.count(b"up\n") < len(DIFFICULT):
        ready, _, _ = select.select([reader, warden], [], [])
        if warden in ready:
            warden.events()
        if reader in ready:
            lines += os.read(reader, 4096)


if __name__ == "__main__":
    main()
