"""An error of the program itself after a latent one on the same rank, which may be the reason. Pure.

    RuntimeError: replicas differ by 1.8e-02
    before it, ranks 0-2 never waited for all_reduce on group 'world' at buckets.py:12 (__init__), 44 times

A program that checks its own results fails behind the line that is wrong. Of other errors it is evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Advice, Trait

_LATENT: Final = (FindingKind.LEAKED_WORK, FindingKind.BUFFER_RACE)
#: What programs raise that find their own results wrong.
_OF_CHECKS: Final = ("AssertionError", "RuntimeError")


def tell_latent_before(found: Sequence[Finding], session: Session) -> list[Finding]:
    """The findings, errors of the program with what its ranks had told before."""
    latent = [one for one in found if one.kind in _LATENT]
    return [_led(one, latent, session) if latent and _is_own(one) else one for one in found]


def _is_own(finding: Finding) -> bool:
    return finding.kind is FindingKind.DEAD_RANK and finding.has(Trait.OWN_ERROR)


def _led(finding: Finding, latent: Sequence[Finding], session: Session) -> Finding:
    before = [
        one
        for one in latent
        if set(one.ranks) & set(finding.ranks)
        and one.at_ns is not None
        and (finding.at_ns is None or one.at_ns <= finding.at_ns)
    ]
    first = min(before, key=lambda one: one.at_ns or 0, default=None)
    sites = [] if first is None else list(dict.fromkeys(o.site for o in first.evidence if o.site))
    if first is None or not sites:
        return finding
    evidence = (*finding.evidence, Evidence(text=f"before it, {first.what}", site=sites[0]))
    if session.ranks[finding.ranks[0]].exit_type not in _OF_CHECKS:
        return replace(finding, evidence=evidence)
    short = [site.partition(" (")[0] for site in sites]
    is_dropped = first.kind is FindingKind.LEAKED_WORK and len(short) > 1
    where = f"{short[1]} first, which drops its Work" if is_dropped else f"{short[0]} first"
    advice = f"look at {where}: {first.what}; what that op gave may be wrong"
    return replace(
        finding, evidence=evidence, advice=Advice(advice, Trait.OWN_ERROR, Trait.ERROR_PLACE)
    )
