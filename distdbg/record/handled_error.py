"""The error that the program was handling when an op of it failed: a `finally` or an `__exit__` made the op.

What went wrong first is that error, and it must not be lost behind what the op raised.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NoReturn

from distdbg.errors import DistError, format_error
from distdbg.record.libraries import is_library
from distdbg.record.printable import shorten_middle

_OWN: Final = f"{Path(__file__).parents[1]}{os.sep}"
#: Chains may be made by hand, and be cycles.
_MAX_LINKS: Final = 32
_MAX_LETTERS: Final = 250
#: In the name of what is written within a function: a comprehension, a lambda.
_COMPREHENSION: Final = ".<locals>.<"


def handled_error(error: BaseException) -> BaseException | None:
    """What lines of the program raised, and had not finished with when `error` was raised."""
    current = error.__context__
    for _ in range(_MAX_LINKS):
        if current is None:
            return None
        trace = current.__traceback__
        if trace is not None and not trace.tb_frame.f_code.co_filename.startswith(_OWN):
            return current
        current = current.__context__
    return None


def raise_instead(public: BaseException, native: BaseException) -> NoReturn:
    """Raise `public` for an error of native code, all of whose words it has; what was being handled stays."""
    theirs = handled_error(native)
    try:
        raise public from None
    finally:
        if theirs is not None:
            public.__context__, public.__suppress_context__ = theirs, False
        del (
            public,
            native,
            theirs,
        )  # the traceback has this frame: no cycle keeps the arrays of the op


def say_handled(error: BaseException) -> str:
    """'ValueError: no number at load.py:52 (parse)'; '' where nothing was being handled, or an op had failed.

    Ops that failed have their own errors in the record.
    """
    theirs = None if error.__suppress_context__ else handled_error(error)
    return "" if theirs is error.__cause__ else say_raised(theirs)


def say_raised(theirs: BaseException | None) -> str:
    """The same of an error that is being handled itself; '' of none, and of one that is no error."""
    if theirs is None or isinstance(theirs, DistError | SystemExit):
        return ""
    said = shorten_middle(format_error(theirs).splitlines()[0], _MAX_LETTERS)
    place = ""
    trace = theirs.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_OWN) and not (place and is_library(code.co_filename)):
            name = os.path.basename(code.co_filename)
            function = code.co_qualname.partition(_COMPREHENSION)[0]
            place = f" at {name}:{trace.tb_lineno} ({function})"
        trace = trace.tb_next
    return f"{said}{place}"
