"""Debuggers in ranks: where they stop, and how one talks to a rank that has.

Where a rank stops

    breaker      rules (distdbg/control/breakpoints.py) around the engines of a rank's groups
    breakpoint   dist.breakpoint: all ranks come, some get a debugger, the others wait
    on_error     a rank is held at an uncaught exception

A prompt in the thread of a rank, whoever types there, from wherever

    session      stop_here: a rank stops, is debugged, and goes on; rank_session: how
    rank_pdb     pdb with the user's frames alone and a prompt that anybody may bring
    terminal     any other debugger, on a terminal of its own that a client sees
    desk         what a client says and what the rank answers, between two threads
    serve        the sockets of the ranks of this process
    interrupt    stops a rank that runs
    evaluate     values as short texts
    client       the other end; interaction: a person or a script there

Everything here is loaded when a debugger is needed, and not before. Standard library only.
"""
