"""Which function of torch.distributed an op comes from, where the op itself does not say.

`recv` and `irecv` are one op in torch; only the first is waited for at once, and may be kept until its sender
has told what comes. Ops of torch 2.6 do not know whether their function waits for them; newer ones are told.
"""

from __future__ import annotations

import sys
from types import FrameType

_MODULE = "torch.distributed.distributed_c10d"
#: From the kernel up to the function that the program called.
_MOST_FRAMES = 8


def is_blocking_recv() -> bool:
    """Whether the program has called `torch.distributed.recv`, which may itself call `irecv`."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return False
        if frame.f_globals.get("__name__") == _MODULE and frame.f_code.co_name != "irecv":
            return frame.f_code.co_name == "recv"
        frame = frame.f_back
    return False


def is_async_call() -> bool:
    """Whether nobody waits for the op at once; so it is of what C++ calls, with no function of torch's."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return True
        if frame.f_globals.get("__name__") == _MODULE and "async_op" in frame.f_code.co_varnames:
            return bool(frame.f_locals.get("async_op", True))
        frame = frame.f_back
    return True
