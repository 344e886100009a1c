"""DDP's error about parameters that a rank did not use: what the records show, not torch's text. Pure.

rank 2 did not use regressor.weight, regressor.bias in step 1, whose DDP bucket it never reduced
...
at multitask.py:25 (loss_of): logits, predicted = model(x, rated)
"""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.launch.diagnosis import DDP_UNUSED, Diagnosis
from distdbg.launch.report_details import cut_reason, fold, own_line, say_who
from distdbg.launch.report_end import end_facts
from distdbg.launch.root_cause import RootCause


def shown_unused(diagnosis: Diagnosis | None, found: RootCause) -> Diagnosis | None:
    """The diagnosis, where it names the parameters behind such an error."""
    if diagnosis is None or DDP_UNUSED not in found.first[0].reason:
        return None
    return diagnosis if " did not use " in diagnosis.what else None


def unused_parameters(found: RootCause, shown: Diagnosis, aftermath: str) -> Iterator[str]:
    """The parameters, the rank and the step, then the program's own line."""
    first = found.first[0]
    yield shown.what
    if aftermath:
        yield aftermath
    yield from end_facts(first, "")
    yield from (fact for fact in shown.evidence if " gave no gradient to " in fact)
    yield cut_reason(f"{say_who(found.first)} {first.how}".partition(". ")[0])
    yield from own_line(first)
    if first.error_file:
        yield f"error file: {first.error_file}"
    yield from fold("failed as well", found.others)
    yield from fold("failed because of it", found.victims, is_brief=True)
