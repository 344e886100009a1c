"""Debuggers in ranks: where they stop, and how one talks to a rank that has.

    breaker      rules (distdbg/control/breakpoints.py) around the engines of a rank's groups
    breakpoint   dist.breakpoint: all ranks come, some get a debugger, the others wait
    on_error     a rank is held at an exception that nobody catches

Nothing of it is loaded in a rank that has no breakpoint. Standard library only.
"""
