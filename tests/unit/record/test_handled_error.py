"""What a program was handling when an op of it failed."""

from __future__ import annotations

import pytest

from distdbg.errors import DistError, MismatchError, OpTimeout
from distdbg.native import NativeError
from distdbg.record.handled_error import handled_error, raise_instead, say_handled

PUBLIC = "barrier #2 differs"


def fail() -> None:
    """As an engine does."""
    try:
        raise NativeError(PUBLIC)
    except NativeError as error:
        error.__traceback__ = None  # of frames of the package alone
        raise_instead(MismatchError(PUBLIC), error)


def clean_up_after(error: BaseException | None) -> None:
    try:
        if error is not None:
            raise error
    finally:
        fail()


def raised_while(error: BaseException | None) -> DistError:
    with pytest.raises(MismatchError) as found:
        clean_up_after(error)
    return found.value


def raise_from() -> None:
    try:
        raise ValueError("no number")
    except ValueError as error:
        raise RuntimeError("bad file") from error


def test_it_stays_in_place_of_what_native_code_said() -> None:
    error = ValueError("no number")
    public = raised_while(error)
    assert public.__context__ is error
    assert not public.__suppress_context__
    said = say_handled(public)
    assert said.startswith("ValueError: no number at test_handled_error.py:")
    assert said.endswith(" (clean_up_after)")


def test_without_one_the_words_of_native_code_are_kept_and_not_shown() -> None:
    public = raised_while(None)
    assert isinstance(public.__context__, NativeError)
    assert public.__suppress_context__
    assert say_handled(public) == ""


def test_ops_that_failed_have_errors_of_their_own() -> None:
    public = raised_while(OpTimeout("too late"))
    assert isinstance(public.__context__, OpTimeout)
    assert say_handled(public) == ""


def test_what_is_raised_from_an_error_says_so_itself() -> None:
    with pytest.raises(RuntimeError) as found:
        raise_from()
    assert say_handled(found.value) == ""


def test_a_cycle_of_errors_ends() -> None:
    one, other = ValueError("a"), ValueError("b")
    one.__context__, other.__context__ = other, one
    assert handled_error(one) is None
