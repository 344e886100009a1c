"""What findings say of themselves for programs."""

from __future__ import annotations

from dataclasses import replace

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.traits import NO_TRAITS, Advice, Trait, subject_of, traits_of


def finding(advice: str) -> Finding:
    return Finding(kind=FindingKind.MISMATCH, severity=Severity.ERROR, what="x", advice=advice)


def test_a_finding_has_the_traits_of_its_advice_as_long_as_it_has_that_advice() -> None:
    reported = finding(Advice("see what sets the size", Trait.SIZES, of="a.py:3"))
    assert reported.has(Trait.SIZES)
    assert not reported.has(Trait.GROUPS)
    assert subject_of(reported.advice) == "a.py:3"
    assert not replace(reported, advice="another one").has(Trait.SIZES)
    assert replace(reported, traits=frozenset((Trait.GROUPS,))).all_traits == {
        Trait.SIZES,
        Trait.GROUPS,
    }


def test_a_plain_text_has_none_and_neither_has_no_text() -> None:
    assert traits_of("see what sets the size") == NO_TRAITS == traits_of(Advice("", Trait.SIZES))
    assert subject_of("see what sets the size") == ""
