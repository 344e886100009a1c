"""A rank that says who it is and waits for a word: files in the folder that it is given.

go: return. fail-<rank>-<restart>: exit with code 3.
"""

import os
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
rank, restart = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"<rank {rank} in {os.environ['WORLD_SIZE']}, restart {restart}>", flush=True)
while not (folder / "go").exists():
    if (folder / f"fail-{rank}-{restart}").exists():
        sys.exit(3)
    time.sleep(0.01)
