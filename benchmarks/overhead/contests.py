"""What is compared with what; pure.

Subjects of one library and one environment share their processes: the level is switched while they
run, so that OFF, INFO and DETAIL differ in nothing else. Only `DISTDBG_UNWRAPPED`, the options and
torch's level are read at the start and need processes of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cases import Case

Env = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """One column: a library, what it finds in the environment, and the level it is switched to."""

    name: str
    library: str
    env: Env = ()
    level: str | None = None

    @property
    def processes(self) -> tuple[str, Env]:
        """Subjects with an equal one are measured in the same processes."""
        return (self.library, self.env)


@dataclass(frozen=True, slots=True)
class Contest:
    """Subjects that take turns on the same cases."""

    name: str
    world_size: int
    subjects: tuple[Subject, ...]
    cases: tuple[Case, ...]


UNWRAPPED = Subject("unwrapped", "distdbg", (("DISTDBG_UNWRAPPED", "1"),))
OFF = Subject("OFF", "distdbg", level="OFF")
INFO = Subject("INFO", "distdbg", level="INFO")
DETAIL = Subject("DETAIL", "distdbg", level="DETAIL")
OURS = (UNWRAPPED, OFF, INFO, DETAIL)

GLOO_OFF = Subject("gloo OFF", "gloo", (("TORCH_DISTRIBUTED_DEBUG", "OFF"),))
GLOO_DETAIL = Subject("gloo DETAIL", "gloo", (("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),))
GLOO = (GLOO_OFF, GLOO_DETAIL)

SMALL = Case("all_reduce", 8)
ASYNC = Case("async all_reduce", 8)
CALLS = (
    SMALL,
    Case("all_reduce", 64 << 10),
    Case("all_reduce", 1 << 20),
    Case("all_reduce", 16 << 20),
    ASYNC,
    Case("barrier", 0),
)
MESSAGE = Case("send_recv", 8)

OPTIONS = tuple(
    Subject(name, "distdbg", ((variable, "1"),), "DETAIL")
    for name, variable in (
        ("nonfinite", "DISTDBG_CHECK_NONFINITE"),
        ("order", "DISTDBG_CHECK_ORDER"),
        ("buffers", "DISTDBG_CHECK_BUFFERS"),
        ("checksum", "DISTDBG_CHECKSUM_EVERY"),
    )
)
OPTION_CASES = (SMALL, Case("all_reduce", 1 << 20), ASYNC, Case("async all_reduce", 1 << 20))

MARK, SPAN = Case("mark", 0), Case("span", 0)
DEPTHS = (4, 20)
DEEP = {depth: Case(f"all_reduce, {depth} frames deeper", 8) for depth in DEPTHS}
FOREIGN = Case("foreign all_reduce", 8)
MONITORED = Case("monitored_barrier", 0)
INIT = Case("init_process_group", 0)

NAMES = ("calls", "options", "foreign", "alone", "monitored", "init")


def all_contests(world_sizes: tuple[int, ...] = (1, 2, 4)) -> list[Contest]:
    """Everything that is measured, in order."""
    contests = [
        Contest("calls", size, (*OURS, *GLOO), CALLS if size == 1 else (*CALLS, MESSAGE))
        for size in world_sizes
    ]
    return [
        *contests,
        Contest("options", 2, (DETAIL, *OPTIONS), OPTION_CASES),
        Contest("foreign", 2, OURS, (FOREIGN,)),
        Contest("alone", 1, (DETAIL,), (MARK, SPAN, SMALL, *DEEP.values())),
        Contest("monitored", 4, (DETAIL, GLOO_OFF), (MONITORED,)),
        Contest("init", 1, (UNWRAPPED, DETAIL), (INIT,)),
        Contest("init", 4, (UNWRAPPED, DETAIL), (INIT,)),
    ]
