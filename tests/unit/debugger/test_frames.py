from __future__ import annotations

import re
import sys
import threading
from types import FrameType
from typing import Any

from distdbg.debugger.frames import program_frame, user_frame
from distdbg.debugger.stop_op import call_at


def test_the_frame_of_the_program_is_outside_of_libraries() -> None:
    seen: list[tuple[FrameType, FrameType]] = []

    def look(_: re.Match[str]) -> str:
        innermost = sys._getframe(1)
        seen.append((user_frame(innermost), program_frame(innermost)))
        return ""

    re.sub("a", look, "a")
    innermost, of_program = seen[0]
    assert innermost.f_code.co_name == "sub"
    assert of_program is sys._getframe()


def test_where_all_is_of_libraries_the_frame_is_the_innermost() -> None:
    code = compile("frame = sys._getframe()", re.__file__, "exec")
    inside: dict[str, Any] = {"sys": sys}
    thread = threading.Thread(target=exec, args=(code, inside))
    thread.start()
    thread.join()
    assert program_frame(inside["frame"]).f_code is code


def test_a_call_comes_from_the_line_that_is_named() -> None:
    code = test_a_call_comes_from_the_line_that_is_named.__code__
    caller = call_at((code, 4711), lambda: sys._getframe(1))
    assert caller.f_code.co_filename == __file__
    assert caller.f_code.co_qualname == code.co_qualname
    assert caller.f_lineno == 4711
