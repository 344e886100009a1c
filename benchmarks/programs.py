"""What is caught: the catalogue of programs under distdbg and under torch gloo.

    python -m benchmarks.programs [--write] [WORD ...]

Runs every program of `tests/programs` (or those whose name holds a WORD) on distdbg, on torch with
its debug OFF, and with DETAIL, each program on fresh ranks and within a time limit: torch's hang and
abort by nature. Prints a Markdown table; --write puts it into docs/explanation/what-is-caught.md.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "tests" / "programs"))

from runner.pool import Result, run_programs  # noqa: E402 - the path is set above
from runner.truth import Truth, all_programs, read_truth  # noqa: E402
from runner.verdict import ABOUT, Verdict, judge  # noqa: E402

PAGE = CHECKOUT / "docs" / "explanation" / "what-is-caught.md"
BEGIN, END = "<!-- measured -->", "<!-- end -->"

#: Column: library, and what it finds in the environment.
SUBJECTS: dict[str, tuple[str, dict[str, str]]] = {
    "distdbg": ("distdbg", {}),
    "torch OFF": ("torch", {"TORCH_DISTRIBUTED_DEBUG": "OFF"}),
    "torch DETAIL": ("torch", {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
}
_LIMIT_S = 12.0

Verdicts = dict[str, dict[str, Verdict]]


def main(argv: Sequence[str]) -> int:
    """Run, print, and write the page if told so."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.programs", description=__doc__)
    parser.add_argument("words", nargs="*", help="only programs whose name holds one of these")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(CHECKOUT)}")
    arguments = parser.parse_args(argv)
    truths = [read_truth(path) for path in all_programs()]
    if arguments.words:
        truths = [t for t in truths if any(word in t.name for word in arguments.words)]
    verdicts = {column: _judge_all(column, truths) for column in SUBJECTS}
    text = f"{_summary(truths, verdicts)}\n\n{_table(truths, verdicts)}"
    print(text)
    if arguments.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
        print(f"Wrote {PAGE}", file=sys.stderr)
    return 0


def _judge_all(column: str, truths: Sequence[Truth]) -> dict[str, Verdict]:
    library, env = SUBJECTS[column]
    is_ours = library == "distdbg"
    verdicts: dict[str, Verdict] = {t.name: Verdict.ABSENT for t in truths}

    def keep(truth: Truth, results: list[Result]) -> None:
        verdicts[truth.name] = judge(truth, results, is_ours=is_ours)
        print(f"{column}: {truth.name}: {verdicts[truth.name]}", file=sys.stderr)

    def run(chosen: Sequence[Truth], side_by_side: int) -> None:
        for needs_torch in (False, True):
            run_programs(
                [t for t in chosen if t.needs_torch is needs_torch],
                subject=library,
                modules=["torch"] if needs_torch else [],
                env=env,
                limit_s=_LIMIT_S,
                side_by_side=side_by_side,
                on_result=keep,
            )

    run([t for t in truths if is_ours or t.is_for_torch], side_by_side=2)
    # Nobody is said to hang who was only slow beside another one.
    run([t for t in truths if verdicts[t.name] is Verdict.HANG], side_by_side=1)
    return verdicts


def _summary(truths: Sequence[Truth], verdicts: Verdicts) -> str:
    lines = []
    for title, is_right in (("wrong programs", False), ("right programs", True)):
        names = [t.name for t in truths if t.is_right is is_right]
        counts = {c: Counter(verdicts[c][name] for name in names) for c in SUBJECTS}
        seen = [v for v in reversed(Verdict) if any(counts[c][v] for c in SUBJECTS)]
        lines += [_row([f"{len(names)} {title}", *SUBJECTS, "means"]), _row(["---"] * 5)]
        for verdict in seen:
            about = ABOUT.get(verdict, "uses what only distdbg has")
            lines.append(_row([verdict, *(str(counts[c][verdict]) for c in SUBJECTS), about]))
        lines.append("")
    return "\n".join(lines).rstrip()


def _table(truths: Sequence[Truth], verdicts: Verdicts) -> str:
    lines = [_row(["program", *SUBJECTS, "what it does"]), _row(["---"] * 5)]
    lines += [
        _row([f"`{t.name}`", *(verdicts[c][t.name] for c in SUBJECTS), t.about]) for t in truths
    ]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
