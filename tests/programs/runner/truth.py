"""What a program says about itself, read without running it.

A program is a script that a user could have written. At its top it has a literal `TRUTH`:

    ranks     how many processes
    outcome   'silent', or what ends a rank: the class of an error, 'exit 3', 'SIGKILL', '*' where
              that depends on who is first; either one text for all ranks or {rank: text}
    op        the kind of the op that the error is about
    odd       the ranks that differ from a majority
    names     the ranks that the error names (without it: the odd ones, or all that have a mark)
    says      words of the error's first line
    missing   the ranks that an OpTimeout must name, for all ranks or {rank: list}
    warns     words that every rank must have written on stderr
    warned    the ranks that must warn, where it is not all; the others are silent
    verdict   what the diagnosis must find: {"kind": "deadlock", "ranks": [0, 1]}; where it is not
              given it follows from `outcome` and `odd`
    env       variables of the run
    torch     False: uses what only distdbg has; 'needs': imports torch itself; 'ours': both

and behind its lines marks like `# <- odd`, so that a line is found however the file changes:

    odd, others, all     where the odd ranks, the other ones, or both called the op, or are when
                         others wait for them
    rank 0, ranks 0-2    the same for these ranks (2 ranks have no odd one)
    previous             where the op before was called, when the order has slipped
    also                 a further line that the warnings and the evidence must name
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent

_MARK = re.compile(r"#\s*<-\s*(.+)$")
_KEYS = {
    "ranks",
    "outcome",
    "op",
    "odd",
    "names",
    "says",
    "missing",
    "warns",
    "warned",
    "env",
    "torch",
    "verdict",
}
_NAMES = re.compile(r"odd|others|all|previous|also|ranks? \d+(-\d+)?")


@dataclass(frozen=True, slots=True)
class Expected:
    """The root cause that the diagnosis must name."""

    kind: str
    ranks: tuple[int, ...]
    lines_of: tuple[int, ...]
    """The ranks whose lines it must show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What must come out of one program."""

    path: Path
    about: str
    ranks: int
    outcome: tuple[str, ...]
    """By rank."""
    op: str
    odd: tuple[int, ...]
    names: tuple[int, ...]
    says: tuple[str, ...]
    missing: tuple[tuple[int, ...] | None, ...]
    """By rank; None where no OpTimeout is expected."""
    warns: tuple[str, ...]
    warned: tuple[int, ...] = ()
    """The ranks that must warn."""
    env: dict[str, str] = field(default_factory=dict)
    torch: bool | str = True
    sites: dict[int, int] = field(default_factory=dict)
    """Rank to the line of its call, or where it is when others wait for it."""
    previous_lines: tuple[int, ...] = ()
    also_lines: tuple[int, ...] = ()
    verdict: Expected = Expected("", (), ())

    @property
    def name(self) -> str:
        """'wrong/last_batch_is_shorter'."""
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def needs_torch(self) -> bool:
        """Whether it imports torch."""
        return self.torch in ("needs", "ours")

    @property
    def is_for_torch(self) -> bool:
        """Whether it has a meaning with torch.distributed in place of distdbg."""
        return self.torch not in (False, "ours")

    @property
    def is_right(self) -> bool:
        """Whether nothing may be said about it."""
        return self.path.parent.name == "right"


def all_programs() -> list[Path]:
    """Every program of the catalogue."""
    return sorted(FOLDER.glob("right/*.py")) + sorted(FOLDER.glob("wrong/*.py"))


def read_truth(path: Path) -> Truth:
    """Read TRUTH and the marks of one program; ValueError when they make no sense."""
    text = path.read_text()
    tree = ast.parse(text)
    facts = _literal(tree, path)
    unknown = set(facts) - _KEYS
    if unknown:
        raise ValueError(f"{path.name}: TRUTH has unknown keys {sorted(unknown)}")
    size = facts["ranks"]
    outcome = _by_rank(facts["outcome"], size, path)
    missing = facts.get("missing")
    if missing is not None and not isinstance(missing, dict):
        missing = {rank: missing for rank, end in enumerate(outcome) if end == "OpTimeout"}
    marks = _marks(text, path)
    odd = tuple(facts.get("odd", ()))
    sites = _sites(marks, size, odd)
    return Truth(
        path=path,
        about=" ".join((ast.get_docstring(tree) or "").split()),
        ranks=size,
        outcome=outcome,
        op=facts.get("op", ""),
        odd=odd,
        names=tuple(facts.get("names", odd)) or tuple(sorted(sites)),
        says=tuple(facts.get("says", ())),
        missing=tuple(
            tuple(missing[rank]) if missing and rank in missing else None for rank in range(size)
        ),
        warns=tuple(facts.get("warns", ())),
        warned=tuple(facts.get("warned", range(size) if "warns" in facts else ())),
        env=facts.get("env", {}),
        torch=facts.get("torch", True),
        sites=sites,
        previous_lines=tuple(marks.get("previous", ())),
        also_lines=tuple(marks.get("also", ())),
        verdict=_expect(facts.get("verdict"), outcome, odd, path),
    )


def _literal(tree: ast.Module, path: Path) -> dict[str, Any]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TRUTH":
            facts = ast.literal_eval(node.value)
            if isinstance(facts, dict):
                return facts
    raise ValueError(f"{path.name} has no literal TRUTH")


#: What the end of a rank says of the cause; the first that some rank has.
_KINDS = {
    "MismatchError": "mismatch",
    "DivergedError": "diverged replicas",
    "NonFiniteError": "NaN source",
    "BufferChangedError": "failed op",
    "SIGKILL": "dead rank",
    "ValueError": "dead rank",
    "UsageError": "dead rank",
    "exit": "dead rank",
    "RankLeft": "missing rank",
}


def _expect(
    said: dict[str, Any] | None, outcome: tuple[str, ...], odd: tuple[int, ...], path: Path
) -> Expected:
    if said is not None:
        ranks = tuple(said["ranks"])
        return Expected(said["kind"], ranks, tuple(said.get("lines_of", ranks)))
    ends = {end.partition(" ")[0] for end in outcome}
    kind = next((kind for end, kind in _KINDS.items() if end in ends), "")
    if not kind and path.parent.name == "wrong":
        raise ValueError(f"{path.name}: its outcome does not say what the diagnosis must find")
    # A mismatch shows where every rank called.
    lines_of = tuple(range(len(outcome))) if kind == "mismatch" else odd
    return Expected(kind, odd, lines_of)


def _by_rank(outcome: str | dict[int, str], size: int, path: Path) -> tuple[str, ...]:
    if isinstance(outcome, str):
        return (outcome,) * size
    if sorted(outcome) != list(range(size)):
        raise ValueError(f"{path.name}: the outcome of every rank from 0 to {size - 1}, please")
    return tuple(outcome[rank] for rank in range(size))


def _marks(text: str, path: Path) -> dict[str, list[int]]:
    marks: dict[str, list[int]] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        found = _MARK.match(token.string) if token.type == tokenize.COMMENT else None
        for name in found[1].split(",") if found else ():
            if not _NAMES.fullmatch(name.strip()):
                raise ValueError(f"{path.name}:{token.start[0]}: unknown mark {name.strip()!r}")
            marks.setdefault(name.strip(), []).append(token.start[0])
    return marks


def _sites(marks: dict[str, list[int]], size: int, odd: tuple[int, ...]) -> dict[int, int]:
    sites: dict[int, int] = {}
    for name, lines in marks.items():
        if name in ("previous", "also"):
            continue
        if name == "all":
            who = set(range(size))
        elif name in ("odd", "others"):
            who = set(odd) if name == "odd" else set(range(size)) - set(odd)
        else:
            low, _, high = name.split()[1].partition("-")
            who = set(range(int(low), int(high or low) + 1))
        for rank in who:
            if rank in sites or len(lines) > 1:
                raise ValueError(f"the marks give rank {rank} two lines")
            sites[rank] = lines[0]
    return sites
