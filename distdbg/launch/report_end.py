"""When the first rank failed, and of one that was killed what is known of its memory. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import Final

from distdbg.diagnose import headline
from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.report_layout import LaterLine
from distdbg.record.durations import local_time_text, nbytes_text
from distdbg.record.memory_share import its_share

#: The `RankEnd.cause` of a process that did not exit by itself.
_DEATHS: Final = ("signal", "oom")


def end_facts(
    first: LostRankEvidence, memory_limit: str, others: Sequence[LostRankEvidence] = ()
) -> Iterator[str]:
    """'died at 2026-11-22T04:10:00', 'memory: 3.0 GiB used at most, limit 4.0 GiB (cgroup)'."""
    when = local_time_text(first.failed_wall_ns)
    if when:
        yield LaterLine(f"{'died' if first.end.cause in _DEATHS else 'failed'} at {when}")
    was_killed = first.end.cause == "signal" and first.end.signal == signal.SIGKILL
    if not was_killed and not _is_out_of_memory(first):
        return
    used = first.end.max_rss_nbytes
    words = [f"{nbytes_text(used)} used at most"] if used and first.end.cause != "oom" else []
    share = its_share(first.end, [one.end for one in others], has_raised=not was_killed)
    if words and share:
        words[0] += f" ({share.text})"
    if memory_limit:
        words.append(f"limit {memory_limit}")
    if was_killed and first.end.by == "launcher":  # which looks at it for every SIGKILL
        words.append("no kill by the kernel's OOM killer")
    if words:
        yield f"memory: {', '.join(words)}"


def _is_out_of_memory(one: LostRankEvidence) -> bool:
    """Whether it failed for want of memory."""
    word = headline.of_end(cause=one.end.cause, signal=one.end.signal, error_type=one.error_type)
    return word == headline.OUT_OF_MEMORY
