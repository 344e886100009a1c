"""Messages of several lines in logs: tracebacks, torchrun's failure box, Horovod's stalled ranks.

Lines of many processes may be mixed; one `Blocks` is given the lines of one process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from distdbg.diagnose.load.log_facts import FactShape, LoggedFact
from distdbg.diagnose.load.log_lines import LoggedLine, Origin, to_line
from distdbg.diagnose.load.log_shapes import exit_words

_FRAME: Final = re.compile(
    r'\s{1,8}File "(?P<file>[^"]{1,512})", line (?P<line>\d{1,9}), in (?P<name>.{1,128})'
)
_RAISED: Final = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,200})(?:: (?P<what>.*))?$")
_FIELD: Final = re.compile(r"  (time|host|rank|exitcode|error_file|traceback)\s{0,12}: (.{0,1000})")
_RANK: Final = re.compile(r"(\d{1,7}) +\(local_rank: (\d{1,7})\)")
_EXIT: Final = re.compile(r"(-?\d{1,6}) +\(pid: (\d{1,9})\)")
_STALLED: Final = re.compile(r"(\d{1,7}): \[(.{0,500})")
_CHAINED: Final = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
#: Types that say that somebody else has ended it.
_STOPS: Final = frozenset(("KeyboardInterrupt", "SignalException"))
#: Types that are an end of a launcher, or none.
_NO_CAUSE: Final = frozenset(("ChildFailedError", "SystemExit", "ProcessExitedException"))
#: Folders of code that nobody wrote for this job.
_LIBRARIES: Final = ("site-packages/", "dist-packages/", "/lib/python", "<frozen ", "<string>")
_MAX_STACK: Final = 2000


class LogBlockReader:
    """Reads the lines of one process in their order."""

    def __init__(self) -> None:
        self._frames: list[tuple[str, str, str]] | None = None
        self._is_chained = False
        self._is_stalled = False
        self._box: dict[str, str] = {}
        self._box_line: LoggedLine | None = None
        self._is_root = False

    def feed(self, line: LoggedLine, facts: list[LoggedFact]) -> Iterator[LoggedFact]:
        """Facts that end with this line; `facts`, which it states alone, get their place in the code."""
        text = line.text
        if self._frames is not None:
            yield from self._in_traceback(line, facts)
        elif text.startswith("Traceback (most recent call last)"):
            self._frames = []
        elif text.startswith(_CHAINED):
            self._is_chained = True
        if self._is_stalled:
            yield from self._stalled(line)
        elif text.rstrip().endswith(("Missing ranks:", "Stalled ranks:")):
            self._is_stalled = True
        yield from self._in_box(line)

    def finish(self) -> Iterator[LoggedFact]:
        """What the end of the file ends."""
        yield from self._close_box()

    # ------------------------------------------------------------------- tracebacks

    def _in_traceback(self, line: LoggedLine, facts: list[LoggedFact]) -> Iterator[LoggedFact]:
        frames, text = self._frames, line.text
        assert frames is not None
        found = _FRAME.match(text)
        if found:
            if len(frames) < _MAX_STACK:
                frames.append((found["file"], found["line"], found["name"]))
            return
        if text[:1] in (" ", "\t", "") or text.startswith("Traceback"):
            return
        self._frames = None
        raised = _RAISED.match(text)
        is_later, self._is_chained = self._is_chained, False
        site = _site(frames)
        for fact in facts:
            fact.site = fact.site or site
        if raised is None or facts or is_later:
            return  # a known message, or what came of an error that was told before
        kind = raised["type"].rpartition(".")[2]
        if kind in _NO_CAUSE:
            return
        what = f"{kind}: {raised['what']}" if raised["what"] else kind
        shape = FactShape.STOPPED if kind in _STOPS else FactShape.RAISED
        yield LoggedFact(
            shape=shape, line=line, rank=line.rank, text=what[:400], site=site, words={"type": kind}
        )

    # ------------------------------------------------------------------- Horovod

    def _stalled(self, line: LoggedLine) -> Iterator[LoggedFact]:
        found = _STALLED.match(line.text)
        if found is None:
            self._is_stalled = False
            return
        rank, names = int(found[1]), found[2].split(",")
        yield LoggedFact(
            shape=FactShape.MISSING,
            line=line,
            text=f"rank {rank} has not called {names[0].strip(' []')}",
            ranks=(rank,),
        )

    # ------------------------------------------------------------------- torchrun's box

    def _in_box(self, line: LoggedLine) -> Iterator[LoggedFact]:
        text = line.text
        if text.startswith("Root Cause (first observed failure)"):
            yield from self._close_box()
            self._is_root = True
        elif text.startswith(("[", "---", "===")):
            yield from self._close_box()
            if text.startswith("==="):
                self._is_root = False
        else:
            found = _FIELD.match(text)
            if found:
                self._box[found[1]] = found[2].strip()
                self._box_line = self._box_line or line

    def _close_box(self) -> Iterator[LoggedFact]:
        box, line = self._box, self._box_line
        self._box, self._box_line = {}, None
        rank, ended = _RANK.match(box.get("rank", "")), _EXIT.match(box.get("exitcode", ""))
        if line is None or rank is None or ended is None:
            return
        code = int(ended[1])
        at = to_line(box.get("time", "").replace("_", " ", 1), Origin(""), 0)
        reported = box.get("traceback", "")
        yield LoggedFact(
            shape=FactShape.CHILD,
            line=replace(line, wall_ns=at.wall_ns, host=box.get("host", "")),
            rank=int(rank[1]),
            text=f"rank {rank[1]} {exit_words(code)}",
            pid=int(ended[2]),
            numbers={"exit_code": code, "local_rank": int(rank[2])},
            words={} if reported.startswith(("To enable", "Signal")) else {"traceback": reported},
            is_first=self._is_root,
        )


def _site(frames: list[tuple[str, str, str]]) -> str:
    """The innermost frame of the job's own code."""
    for file, line, name in reversed(frames):
        if not any(part in file for part in _LIBRARIES):
            return f"{file.rpartition('/')[2]}:{line} ({name.strip()})"
    if not frames:
        return ""
    file, line, name = frames[-1]
    return f"{file.rpartition('/')[2]}:{line} ({name.strip()})"
