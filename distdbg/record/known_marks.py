"""Marks and spans that distdbg itself writes for a program, so that readers know them."""

from __future__ import annotations

from typing import Final

#: Spans of a step.
FORWARD: Final = "forward"
BACKWARD: Final = "backward"
OPTIMIZER: Final = "optimizer"
#: A mark at the end of a step; its value is the number of the step, from 1.
STEP: Final = "step"
#: A mark when a loop gets its next batch; its value is the batch's number, from 1.
BATCH: Final = "batch"
#: A mark when a loop asks for one more batch and there is none; its value is how many there were.
OUT_OF_BATCHES: Final = "out of batches"
#: The same for the steps that a Joinable announces, where Join is disabled.
JOIN_STEP: Final = "join step"
JOIN_OUT_OF_BATCHES: Final = "join out of batches"
#: A mark of a rank that has left the block of an enabled Join; its value is how many steps it made.
JOINED: Final = "joined"
#: Then names of parameters that a backward pass gave no gradient; the value is the step's number.
NO_GRADIENT: Final = "no gradient: "
#: Then names of parameters of a DDP whose gradients a backward pass changed although its forward pass had
#: not run, so that nothing was reduced; the value is the step's number.
NOT_REDUCED: Final = "not reduced: "
#: Then the function and the line of a call on a group that the rank is not in: nothing was done.
NOT_A_MEMBER: Final = "not a member: "
#: Then the dimensions of a device mesh and the group of each.
MESH: Final = "mesh: "
#: The type of the finding that a rank writes of a thread that has ended by an exception.
THREAD_ERROR: Final = "ThreadError"
#: The type of the finding that a rank writes before it ends its own process.
EXIT_CALL: Final = "ExitCall"
#: How its words begin where the program may have gone on: sys.exit raises an exception.
SYS_EXIT: Final = "called sys.exit("
#: Of one that a rank writes of a line that receives from any rank and drops the answer from which.
SOURCE_DROPPED: Final = "SourceDropped"

#: What ranks find themselves, and the agent, of errors that do not show yet.
LATENT: Final = frozenset(("BufferRace", "LeakedGroup", "LeakedWork", "MessageRace"))
