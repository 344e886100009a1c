"""Since Python 3.12 the extension is built for the stable ABI, which lacks CPython's macros for objects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

#: PyList_GET_SIZE, PyBytes_AS_STRING: they read an object's fields.
MACRO = re.compile(r"\bPy[A-Z]\w*_[A-Z]{2,}\w*\(")
BINDINGS = sorted(Path("native/bindings").glob("*.[ch]pp"))


@pytest.mark.parametrize("path", BINDINGS, ids=lambda path: path.name)
def test_no_macro_reads_the_fields_of_an_object(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert [line for line in lines if MACRO.search(line.partition("//")[0])] == []


def test_such_a_macro_is_found() -> None:
    assert MACRO.search("return PyList_GET_SIZE(list);")
    assert not MACRO.search("return PyList_Size(list);")
    assert not MACRO.search("Py_DECREF(code);")
