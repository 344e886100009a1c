"""What a program may choose for a group over NCCL: `pg_options=`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class NcclOptions:
    """For `init_process_group("nccl", pg_options=...)`; torch's ProcessGroupNCCL.Options serves too."""

    #: Ops run on a stream that the device prefers to others.
    is_high_priority_stream: bool = False
    #: wait() blocks the host until the op has ended, where it would block the stream.
    is_blocking_wait: bool = False

    @classmethod
    def read(cls, pg_options: object) -> NcclOptions:
        """From an object of this class or of torch's; None and others mean the defaults."""
        return cls(
            getattr(pg_options, "is_high_priority_stream", False) is True,
            getattr(pg_options, "is_blocking_wait", False) is True,
        )
