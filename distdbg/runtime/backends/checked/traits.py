"""Traits of a backend: attributes that its class or object may set.

    distdbg_is_checked          it compares the calls of the ranks itself; ours would be a second check
    distdbg_is_bound_to_thread  its ops must be started on the thread of the caller (a stream, a GIL
                                state or an MPI thread level belongs to that thread)
    distdbg_ignores_tags        point to point ops are matched in order, whatever their tags
    distdbg_reads_strides       it moves elements, not memory, so ranks may differ in memory order
    distdbg_ends_later          its ops end after they have returned (on a device), and so may their errors

All are False where they are absent.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The answers of one backend."""

    is_checked: bool = False
    is_bound_to_thread: bool = False
    ignores_tags: bool = False
    reads_strides: bool = False
    ends_later: bool = False

    @classmethod
    def of(cls, backend: object) -> Traits:
        """Read the attributes."""
        return cls(
            is_checked=_says(backend, "is_checked"),
            is_bound_to_thread=_says(backend, "is_bound_to_thread"),
            ignores_tags=_says(backend, "ignores_tags"),
            reads_strides=_says(backend, "reads_strides"),
            ends_later=_says(backend, "ends_later"),
        )


def _says(backend: object, name: str) -> bool:
    return getattr(backend, f"distdbg_{name}", False) is True
