"""Errors of torch's DDP behind which the records show more than torch's text does. Pure.

the models for DDP differ: rank 2 has 4 parameters that require grad, ranks 0-1,3 have 6, at finetune.py:26
rank 2 did not use regressor.weight, regressor.bias in step 1, whose DDP bucket it never reduced
...
at multitask.py:25 (loss_of): logits, predicted = model(x, rated)
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import Final

from distdbg.diagnose import headline
from distdbg.diagnose.traits import FactKind, Trait
from distdbg.launch.diagnosis import DDP_ERRORS, Diagnosis
from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.report_details import cut_reason, fold, own_line, say_who
from distdbg.launch.report_layout import LaterLine
from distdbg.launch.root_cause import RootCause
from distdbg.record.durations import local_time_text, nbytes_text
from distdbg.record.memory_share import its_share

_SHOWN: Final = frozenset((Trait.UNUSED_PARAMETERS, Trait.MODELS_DIFFER))


#: The `RankEnd.cause` of a process that did not exit by itself.
_DEATHS: Final = ("signal", "oom")


def shown_of_ddp(diagnosis: Diagnosis | None, found: RootCause) -> Diagnosis | None:
    """The diagnosis, where it names the parameters, or the rank, behind such an error."""
    if diagnosis is None or not is_ddp_error(found.first[0].reason):
        return None
    return diagnosis if diagnosis.traits & _SHOWN else None


def is_ddp_error(reason: str) -> bool:
    """Whether it is worth asking the records."""
    return any(text in reason for text in DDP_ERRORS)


def ddp_error(found: RootCause, shown: Diagnosis, aftermath: Iterator[str]) -> Iterator[str]:
    """What the records show, then the program's own line."""
    first = found.first[0]
    yield shown.what
    yield from aftermath
    yield from end_facts(first, "")
    yield from (fact.text for fact in shown.facts if fact.kind == FactKind.NO_GRADIENT)
    yield cut_reason(f"{say_who(found.first)} {first.how}".partition(". ")[0])
    yield from own_line(first)
    if first.error_file:
        yield LaterLine(f"error file: {first.error_file}")
    yield from fold("failed as well", found.others)
    yield from fold("failed because of it", found.victims, is_brief=True)


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
