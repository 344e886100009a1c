"""Which stream of which rank goes where, and what its lines begin with. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from string import Template
from typing import TYPE_CHECKING, Self

from distdbg.launch.output_streams import StdStreams

if TYPE_CHECKING:
    from distdbg.launch.options import RunOptions


class StreamTarget(StrEnum):
    """Where a rank writes one of its streams."""

    INHERITED = "inherited"
    """To the launcher's own: stdout straight, stderr through a pipe of which whole lines come."""
    FILE = "file"
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChoices:
    """What the command line says about outputs. Tuples go by local rank; beyond their end: NONE."""

    redirects: tuple[StdStreams, ...] = ()
    tee: tuple[StdStreams, ...] = ()
    local_ranks: frozenset[int] | None = None
    """The only ones that reach the console; None, or empty: all."""
    stdout_filters: tuple[str, ...] = ()
    """Teed lines that contain one of them go into a file of their own as well."""
    stderr_filters: tuple[str, ...] = ()
    role: str = "default"
    prefix_template: str | None = None
    """With ${role_name}, ${local_rank}, ${rank}; other names stay as they are."""

    @classmethod
    def from_options(cls, options: RunOptions) -> Self:
        return cls(
            redirects=options.redirects,
            tee=options.tee,
            local_ranks=options.local_ranks_filter,
            stdout_filters=options.duplicate_stdout_filters,
            stderr_filters=options.duplicate_stderr_filters,
            role=options.role,
            prefix_template=options.log_line_prefix_template,
        )

    def place(self, local_rank: int, stream: StdStreams) -> StreamTarget:
        """Where that rank writes that stream."""
        if stream & (_of(self.redirects, local_rank) | _of(self.tee, local_rank)):
            return StreamTarget.FILE
        if self.is_shown(local_rank):
            return StreamTarget.INHERITED
        # What it says on stderr is wanted when it fails, although nobody wants to watch it.
        return StreamTarget.FILE if stream is StdStreams.ERR else StreamTarget.NOWHERE

    def is_teed(self, local_rank: int, stream: StdStreams) -> bool:
        """Whether that stream goes to the console line by line."""
        return bool(stream & _of(self.tee, local_rank)) and self.is_shown(local_rank)

    def is_shown(self, local_rank: int) -> bool:
        return not self.local_ranks or local_rank in self.local_ranks

    def filters(self, stream: StdStreams) -> tuple[str, ...]:
        return self.stdout_filters if stream is StdStreams.OUT else self.stderr_filters

    def prefix(self, local_rank: int, rank: int) -> str:
        """What each teed line begins with: '[default0]:'."""
        if not self.prefix_template:
            return f"[{self.role}{local_rank}]:"
        return Template(self.prefix_template).safe_substitute(
            role_name=self.role, local_rank=local_rank, rank=rank
        )


def _of(choice: tuple[StdStreams, ...], local_rank: int) -> StdStreams:
    return choice[local_rank] if local_rank < len(choice) else StdStreams.NONE
