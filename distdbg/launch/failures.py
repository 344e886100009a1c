"""Why a spawned process failed; the names and attributes are torch.multiprocessing's.

ProcessException              .error_index .error_pid .msg
|- ProcessRaisedException     its function raised; the text has its traceback
`- ProcessExitedException     it ended by a signal or an exit code of its own
"""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.errors import DistError


class ProcessException(DistError):
    """A process started by `spawn` failed."""

    #: That of the process, so a launcher can end with the same one.
    exit_code: int = 1  # type: ignore[misc]  # a constant of the class everywhere else

    def __init__(
        self,
        what: str,
        *,
        error_index: int = -1,
        error_pid: int = -1,
        exit_code: int = 1,
        details: Sequence[str] = (),
    ) -> None:
        super().__init__(what, details=details)
        self.error_index = error_index
        self.error_pid = error_pid
        self.exit_code = exit_code

    @property
    def msg(self) -> str:
        """The whole text."""
        return str(self)

    @property
    def pid(self) -> int:
        """The same as error_pid."""
        return self.error_pid


class ProcessRaisedException(ProcessException):
    """The function raised in that process."""


class ProcessExitedException(ProcessException):
    """The process ended without the function having returned or raised."""

    def __init__(
        self,
        what: str,
        *,
        error_index: int = -1,
        error_pid: int = -1,
        exit_code: int = 1,
        signal_name: str | None = None,
        details: Sequence[str] = (),
    ) -> None:
        super().__init__(
            what,
            error_index=error_index,
            error_pid=error_pid,
            exit_code=exit_code,
            details=details,
        )
        self.signal_name = signal_name
