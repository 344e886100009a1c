"""The environment of this process without what a launcher has set for it as a rank. Pure.

A rank may start a job of its own, by `distdbg run` or by `spawn`: what says where the ranks around it
meet, and where their records go, is not for those below.
"""

from __future__ import annotations

from collections.abc import Mapping

_OF_A_RANK = ("STORE", "RUN", "RUN_DIR", "HOST", "AGENT", "ERROR_FILE")
_PLACES = ("MASTER_ADDR", "MASTER_PORT")


def is_rank_of_launcher(environ: Mapping[str, str]) -> bool:
    """Whether `distdbg run` has started this process, or the one that started it."""
    return environ.get("DISTDBG_STORE", "").startswith("launcher://")


def own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What is left when the launcher's own is taken out."""
    kept = dict(environ)
    if is_rank_of_launcher(environ):
        for name in (*(f"DISTDBG_{part}" for part in _OF_A_RANK), *_PLACES):
            kept.pop(name, None)
    return kept
