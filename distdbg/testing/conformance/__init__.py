"""Conformance suites: one set of tests per interface, for every implementation of it, also yours.

group  what every process group does, under any API that is spelled as torch.distributed
store  what every Store does
"""

from __future__ import annotations
