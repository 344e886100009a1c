"""Marks and spans that distdbg itself writes for a program, so that readers know them."""

from __future__ import annotations

from typing import Final

#: Spans of a step.
FORWARD: Final = "forward"
BACKWARD: Final = "backward"
OPTIMIZER: Final = "optimizer"
#: A mark at the end of a step; its value is the number of the step, from 1.
STEP: Final = "step"
#: Then names of parameters that a backward pass gave no gradient; the value is the step's number.
NO_GRADIENT: Final = "no gradient: "
#: Then the dimensions of a device mesh and the group of each.
MESH: Final = "mesh: "
