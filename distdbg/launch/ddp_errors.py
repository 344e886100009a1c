"""Errors of torch's DDP behind which the records show more than torch's text does. Pure.

the models for DDP differ: rank 2 has 4 parameters that require grad, ranks 0-1,3 have 6, at finetune.py:26
rank 2 did not use regressor.weight, regressor.bias in step 1, whose DDP bucket it never reduced
...
at multitask.py:25 (loss_of): logits, predicted = model(x, rated)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from distdbg.diagnose.traits import FactKind, Trait
from distdbg.launch.diagnosis import DDP_ERRORS, Diagnosis
from distdbg.launch.report_details import cut_reason, fold, own_line, say_who
from distdbg.launch.report_end import end_facts
from distdbg.launch.report_layout import LaterLine
from distdbg.launch.root_cause import RootCause

_SHOWN: Final = frozenset((Trait.UNUSED_PARAMETERS, Trait.MODELS_DIFFER))


def shown_of_ddp(diagnosis: Diagnosis | None, found: RootCause) -> Diagnosis | None:
    """The diagnosis, where it names the parameters, or the rank, behind such an error."""
    if diagnosis is None or not is_ddp_error(found.first[0].reason):
        return None
    return diagnosis if diagnosis.traits & _SHOWN else None


def is_ddp_error(reason: str) -> bool:
    """Whether it is worth asking the records."""
    return any(text in reason for text in DDP_ERRORS)


def ddp_error(found: RootCause, shown: Diagnosis, aftermath: str) -> Iterator[str]:
    """What the records show, then the program's own line."""
    first = found.first[0]
    yield shown.what
    if aftermath:
        yield aftermath
    yield from end_facts(first, "")
    yield from (fact.text for fact in shown.facts if fact.kind == FactKind.NO_GRADIENT)
    yield cut_reason(f"{say_who(found.first)} {first.how}".partition(". ")[0])
    yield from own_line(first)
    if first.error_file:
        yield LaterLine(f"error file: {first.error_file}")
    yield from fold("failed as well", found.others)
    yield from fold("failed because of it", found.victims, is_brief=True)
