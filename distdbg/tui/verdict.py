"""Reads the verdict of a snapshot: the document of `distdbg analyze --json`, from an agent that may be older
or newer than we are. What is missing, or is not what it should be, is empty. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from distdbg.render.words import ranks_text
from distdbg.tui.cells import Cell, Tone, one_line
from distdbg.tui.sheet import SheetLine
from distdbg.tui.targets import FindingTarget

Document = Mapping[str, Any]

_SEVERITIES: Final = {"error": 0, "warning": 1, "note": 2}
_TONES: Final = {"error": Tone.FAULT, "warning": Tone.WARN, "note": Tone.MUTED}


def items(of: Document | None, name: str) -> list[Document]:
    """The objects in a list."""
    found = of.get(name) if of is not None else None
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def texts(of: Document | None, name: str) -> list[str]:
    """The texts in a list."""
    found = of.get(name) if of is not None else None
    return (
        [one_line(one) for one in found if isinstance(one, str)] if isinstance(found, list) else []
    )


def words(of: Document | None, name: str) -> str:
    """A text, safe to show."""
    found = of.get(name) if of is not None else None
    return one_line(found) if isinstance(found, str) else ""


def ranks(of: Document, name: str) -> tuple[int, ...]:
    """A list of ranks."""
    found = of.get(name)
    return tuple(one for one in found if isinstance(one, int)) if isinstance(found, list) else ()


def role_ranks(document: Document | None, role: str) -> tuple[int, ...]:
    """The ranks that have this role in the verdict."""
    return tuple(
        one["rank"]
        for one in items(document, "ranks")
        if one.get("role") == role and isinstance(one.get("rank"), int)
    )


def root_path(document: Document | None) -> tuple[int, ...] | None:
    """Where the root cause is; None where there is none."""
    verdict = document.get("verdict") if document is not None else None
    root = verdict.get("root") if isinstance(verdict, Mapping) else None
    return (root,) if isinstance(root, int) and not isinstance(root, bool) else None


def ordered(document: Document | None) -> list[tuple[int, Document]]:
    """The findings with their places: the root cause, then by severity, then as they were found."""
    root = root_path(document)
    return sorted(
        enumerate(items(document, "findings")),
        key=lambda one: ((one[0],) != root, _SEVERITIES.get(words(one[1], "severity"), 3)),
    )


def target_of(finding: Document, path: tuple[int, ...]) -> FindingTarget:
    """What opens it."""
    seq = finding.get("seq")
    return FindingTarget(
        path,
        words(finding, "kind"),
        words(finding, "group"),
        seq if isinstance(seq, int) else 0,
        ranks(finding, "ranks"),
    )


def finding_at(document: Document | None, path: tuple[int, ...]) -> Document | None:
    """The finding in this place."""
    found = items(document, "findings")
    one: Document | None = None
    for at in path:
        if not 0 <= at < len(found):
            return None
        one = found[at]
        found = items(one, "follows")
    return one


def found_again(document: Document | None, target: FindingTarget) -> tuple[int, ...] | None:
    """Where that finding is in a later verdict: where it was, or where one like it is."""
    there = finding_at(document, target.path)
    if there is not None and target_of(there, target.path) == target:
        return target.path
    for path, one in _all(items(document, "findings"), ()):
        if (words(one, "kind"), words(one, "group"), ranks(one, "ranks")) == (
            target.kind, target.group, target.ranks,
        ):  # fmt: skip
            return path
    return None


def _all(
    findings: list[Document], path: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Document]]:
    for at, one in enumerate(findings):
        yield (*path, at), one
        if len(path) < 4:
            yield from _all(items(one, "follows"), (*path, at))


def finding_line(finding: Document, target: FindingTarget, *, is_head: bool = False) -> SheetLine:
    """'error    deadlock of ranks 0,1: ...'."""
    severity = words(finding, "severity") or "finding"
    tone = _TONES.get(severity, Tone.PLAIN)
    return SheetLine(
        (Cell(f"{severity:<9}", tone), Cell(words(finding, "what"), Tone.TITLE)),
        None if is_head else target,
        hang=9,
        is_fault=severity in ("error", "warning"),
        block=None if is_head else target.path,
    )


def evidence_words(fact: Document) -> str:
    """Its text, and the places that it does not name itself."""
    text = words(fact, "text")
    site, source = words(fact, "site"), words(fact, "source")
    if site and site not in text:
        text += f" at {site}"
    if source and source not in text:
        text += f" [{source}]"
    return text


def edge_words(edge: Document) -> str:
    """'rank 0 waits in recv from rank 1 at a.py:3 (run) for rank 1'."""
    on = ranks(edge, "on")
    site = words(edge, "site")
    text = f"rank {edge.get('rank')} waits in {words(edge, 'text') or 'an op'}"
    text += f" at {site}" if site else ""
    if on and not (len(on) == 1 and f"{ranks_text(on)} " in f"{words(edge, 'text')} "):
        is_any = edge.get("is_any") is True and len(on) > 1
        text += f" for {'any of ' if is_any else ''}{ranks_text(on)}"
    return text
