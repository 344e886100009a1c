"""Who holds the lock of a group's messages may wait for the GIL: nobody takes that lock with the GIL held."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

BINDINGS = sorted(Path("native/bindings").glob("*.[ch]pp"))
TAKES = re.compile(r"\bmessages(?:\.|->)\w+\(")
#: Where a function begins: a method, or the lambda of a binding.
BEGINS = re.compile(r"^  \w.*\{$|\[[^\]]*\]\(")


def held(text: str, guarded: str = "") -> list[int]:
    """The lines that take the lock in a function that has not let go of the GIL.

    `guarded`: the text that binds methods, some of them with nb::call_guard<ReleaseGil>().
    """
    lines, found = text.splitlines(), []
    for at, line in enumerate(lines):
        if not TAKES.search(line.partition("//")[0]):
            continue
        first = next(n for n in range(at, -1, -1) if n == 0 or BEGINS.search(lines[n]))
        name = re.search(r"(\w+)\(", lines[first])
        bound = rf"::{name[1]}, nb::call_guard<ReleaseGil>" if name else "$^"
        if "ReleaseGil" not in "\n".join(lines[first : at + 1]) and not re.search(bound, guarded):
            found.append(at + 1)
    return found


@pytest.mark.parametrize("path", BINDINGS, ids=lambda path: path.name)
def test_the_lock_of_messages_is_taken_without_the_gil(path: Path) -> None:
    assert held(path.read_text(), "\n".join(each.read_text() for each in BINDINGS)) == []


def test_a_lock_that_is_taken_with_the_gil_is_found() -> None:
    method = "  bool f() const {\n    return parts()->messages.is_idle();\n  }\n"
    assert held(method) == [2]
    assert held(method, '.def("f", &G::f, nb::call_guard<ReleaseGil>())') == []
    assert held(method.replace("return", "const ReleaseGil release;\n    return")) == []
    assert held('      .def("wake", [](const G& self) { self.parts()->messages.wake(); })') == [1]
