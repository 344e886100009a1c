"""A rank that waits for its end, as its arguments say.

    waiting.py [deaf] [family] [loud] [told]     deaf: hears no SIGTERM or Ctrl-C; family: has a child, and
                                                 one that left the session; loud: says which signal came;
                                                 told: leaves a file when one came, and waits on
Prints one line when it is ready.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time


def say(signum: int, frame: object) -> None:
    os.write(1, f"rank {os.environ['RANK']} got {signal.Signals(signum).name}\n".encode())
    sys.exit(0)


def note(signum: int, frame: object) -> None:
    with open(os.path.join(os.environ["READY"], "reported"), "w"):
        pass


def main() -> None:
    wishes = sys.argv[1:]
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
    for signum in ends:
        if "deaf" in wishes:
            signal.signal(signum, signal.SIG_IGN)
        elif "loud" in wishes:
            signal.signal(signum, say)
        elif "reported" in wishes:
            signal.signal(signum, note)
    if "family" in wishes:
        sleep = ["sleep", "600"]
        subprocess.Popen(sleep, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.Popen(
            sleep, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    with open(os.path.join(os.environ["READY"], os.environ["RANK"]), "w"):
        pass
    time.sleep(600)


if __name__ == "__main__":
    main()
