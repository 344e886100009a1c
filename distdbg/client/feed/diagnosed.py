"""What `distdbg analyze` says of a job that is over, for a dashboard that stays open.

The agent's last verdict is of the moment before: "rank 2 is asleep ...; ranks 0-1,3 wait for it", though the
job was stopped since.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distdbg.diagnose.finding import Verdict


def diagnosed(folder: Path | None) -> Verdict | None:
    """The verdict by the records; None where these are not all on this host."""
    if folder is None:
        return None
    from distdbg.diagnose.load.run_folder import load_run
    from distdbg.diagnose.verdict import diagnose

    try:
        session = load_run(folder)
        if session.missing_ranks() or session.ranks_without_record():
            return None
        return diagnose(session)
    except Exception:  # noqa: BLE001  # the dashboard stays; the agent's words are there
        return None
