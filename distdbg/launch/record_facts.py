"""What the record of a rank says at its end, read by `left_record.py`: a plain value, without the reader."""

from __future__ import annotations

from dataclasses import dataclass

from distdbg.record.format import Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts:
    """What the record of a rank says at its end."""

    path: str
    doing: str = ""
    """'in all_reduce #12 on group 'dp' for 3.1 s, train.py:80 (step)'."""
    how: Exit | None = None
    raised: str = ""
    """'ValueError: no data'."""
    raised_wall_ns: int = 0
    error_type: str = ""
    """The type of the last error that one of its ops had; `error_ranks` are its ranks."""
    error_ranks: tuple[int, ...] = ()
    thread_error: str = ""
    """How a thread has ended by an exception: 'thread 'loader' raised OSError: x at a.py:3 (read)'."""
    exit_call: str = ""
    """How the program ended its own process: 'thread 'beat' called os._exit(75) at beat.py:33 (run)'."""
    has_latent_errors: bool = False
    """Whether the rank has noted errors that did not show then: Work that nobody waited for, gradients of DDP
    that were left unreduced."""
    exit_site: str = ""
    """Where: 'beat.py:33'."""
