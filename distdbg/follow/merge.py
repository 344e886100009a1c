"""Merges equal stacks of ranks into one, with the ranks that have it. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from distdbg.errors import format_ranks
from distdbg.follow.stacks import RankStacks, StackFrame, ThreadStack
from distdbg.record.printable import printable

#: What stands for the frames of a debugger whose prompt is open.
AT_PROMPT: Final = "at a prompt of the debugger"
_OURS: Final = f"{os.sep}distdbg{os.sep}debugger{os.sep}"
_PROMPT: Final = f"{os.sep}pdb.py"
_DEBUGGERS: Final = frozenset(("pdb.py", "bdb.py", "cmd.py", "code.py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedStack:
    """One stack and the ranks that have a thread there."""

    ranks: tuple[int, ...]
    thread_count: int
    """More than the ranks where some have several such threads."""
    thread: str
    is_main: bool
    holds_gil: bool
    frames: tuple[StackFrame, ...]

    def to_plain(self) -> dict[str, Any]:
        return {
            "ranks": list(self.ranks),
            "threads": self.thread_count,
            "thread": self.thread,
            "is_main": self.is_main,
            "holds_gil": self.holds_gil,
            "frames": [
                {"function": f.function, "file": f.file, "line": f.line, "native": f.is_native}
                for f in self.frames
            ],
        }

    @classmethod
    def from_plain(cls, facts: dict[str, Any]) -> MergedStack:
        """Undo `to_plain`."""
        return cls(
            ranks=tuple(facts["ranks"]),
            thread_count=facts["threads"],
            thread=facts["thread"],
            is_main=facts["is_main"],
            holds_gil=facts["holds_gil"],
            frames=tuple(
                StackFrame(f["function"], f["file"], f["line"], f["native"])
                for f in facts["frames"]
            ),
        )


def merge(stacks: Iterable[RankStacks]) -> list[MergedStack]:
    """Main threads first, then by how many ranks have them."""
    seen: dict[tuple[Any, ...], list[tuple[int, ThreadStack]]] = {}
    for rank in stacks:
        for thread in rank.threads:
            frames = _comparable(_without_debugger(thread.frames))
            key = (thread.is_main, bool(thread.holds_gil), _kind(thread.name), frames)
            seen.setdefault(key, []).append((rank.rank, thread))
    merged = [
        MergedStack(
            ranks=tuple(sorted({rank for rank, _ in found})),
            thread_count=len(found),
            thread=found[0][1].name or ("MainThread" if found[0][1].is_main else ""),
            is_main=found[0][1].is_main,
            holds_gil=bool(found[0][1].holds_gil),
            frames=key[-1],
        )
        for key, found in seen.items()
    ]
    return _in_order(merged)


def join(merged: Iterable[MergedStack]) -> list[MergedStack]:
    """What several hosts have merged, as one."""
    seen: dict[tuple[Any, ...], list[MergedStack]] = {}
    for one in merged:
        key = (one.is_main, one.holds_gil, _kind(one.thread), one.frames)
        seen.setdefault(key, []).append(one)
    return _in_order(
        replace(
            found[0],
            ranks=tuple(sorted({rank for one in found for rank in one.ranks})),
            thread_count=sum(one.thread_count for one in found),
        )
        for found in seen.values()
    )


def _in_order(merged: Iterable[MergedStack]) -> list[MergedStack]:
    return sorted(merged, key=lambda m: (not m.is_main, -len(m.ranks), m.ranks))


def render(merged: Iterable[MergedStack], failed: Iterable[tuple[int, str]] = ()) -> list[str]:
    """Lines for people: 'ranks 0-5,7', and the frames, the innermost first."""
    lines: list[str] = []
    for stack in merged:
        head = f"{_ranks(stack.ranks)}: {stack.thread or 'a thread'}"
        if stack.thread_count > len(stack.ranks):
            head += f" and similar ones ({stack.thread_count} threads)"
        if stack.holds_gil:
            head += ", holds the GIL"
        lines += [head, *(f"  {frame}" for frame in stack.frames)]
    reasons: dict[str, list[int]] = {}
    for rank, why in failed:
        reasons.setdefault(why, []).append(rank)
    lines += [f"{_ranks(ranks)}: no stacks: {why}" for why, ranks in reasons.items()]
    return [printable(line) for line in lines]


def _ranks(ranks: Iterable[int]) -> str:
    text = format_ranks(ranks)
    return f"rank {text}" if text.isdecimal() else f"ranks {text}"


def _without_debugger(frames: Sequence[StackFrame]) -> Iterator[StackFrame]:
    """Put one line for the frames of a debugger: who stops a rank wants to see the program."""
    inner: list[StackFrame] = []
    for frame in frames:
        inner.append(frame)
        if not (frame.is_native or _is_debuggers(frame)):
            yield from _folded(inner[:-1])
            yield frame
            inner = []
    yield from _folded(inner)


def _folded(frames: Sequence[StackFrame]) -> Iterator[StackFrame]:
    """One run of native frames and those of debuggers, the innermost first."""
    ours = [at for at, frame in enumerate(frames) if _OURS in frame.file]
    if not ours:
        yield from frames
        return
    if any(frame.file.endswith(_PROMPT) for frame in frames):
        yield StackFrame(AT_PROMPT, "", 0, is_native=True)
    else:
        yield frames[ours[-1]]  # 'breakpoint', as the program called it
    yield from frames[ours[-1] + 1 :]


def _is_debuggers(frame: StackFrame) -> bool:
    return _OURS in frame.file or os.path.basename(frame.file) in _DEBUGGERS


def _comparable(frames: Iterable[StackFrame]) -> tuple[StackFrame, ...]:
    """Without addresses, which every process has its own of: one frame per library without names."""
    found: list[StackFrame] = []
    for frame in frames:
        if frame.is_native and frame.function.startswith("0x"):
            frame = StackFrame("...", frame.file, 0, is_native=True)
            if found and found[-1] == frame:
                continue
        found.append(frame)
    return tuple(found)


def _kind(name: str) -> str:
    """The name of a thread without its number: threads of one pool are alike."""
    return name.rstrip("0123456789").rstrip("-_ (")
