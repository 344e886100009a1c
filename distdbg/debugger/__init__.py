"""Debuggers in ranks: where ranks stop, and how a client reaches the prompt.

Where a rank stops

    breaker      rules (distdbg/control/breakpoints.py) around the engines of a rank's groups
    breakpoint   dist.breakpoint: all ranks call it, some get a debugger, the others wait
    on_error     a rank is held at an uncaught exception

A prompt in the thread of a rank, for any client

    session      stop_here: a rank stops, is debugged, and continues; rank_session: how
    rank_pdb     pdb with the user's frames alone and a prompt over any connection
    terminal     any other debugger, on a terminal of its own that a client sees
    desk         requests of a client and answers of the rank, between two threads
    serve        the sockets of the ranks of this process
    interrupt    stops a rank that runs
    evaluate     values as short texts
    client       the other end; interaction: a person or a script there

Everything here is loaded when a debugger is needed, and not before. Standard library only.
"""
