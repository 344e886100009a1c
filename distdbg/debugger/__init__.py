"""Debuggers in ranks: where ranks stop, and how a client reaches the prompt.

Where a rank stops

    breaker      rules (distdbg/control/breakpoints.py), asked before each op of a group, and about its error
    op_facts     an op as the rules see it, expensive fields on demand;  nan: NaN and Inf in its inputs
    breakpoint   dist.breakpoint: all ranks call it, some get a debugger, the others wait
    on_error     a rank is held at an uncaught exception;  on_signal: stops at SIGUSR1
    interrupt    stops a rank that runs;  stopper: when a client asks for it
    stopping     carries out one stop of a rank;  outcome: how it ended
    stop_op      the stop is an op of its own in the record of the rank

A prompt in the thread of a rank, for any client

    session      stop_here: a rank stops, is debugged, and continues;  rank_session: how
    rank_pdb     pdb with the user's frames alone (`frames`) and a prompt over any connection
    foreign      any other debugger;  terminal: on a terminal of its own that a client sees
    streams      redirects the output of one thread to the prompt
    evaluate     values as short texts;  evaluation: one expression of a client
    announce     the lines that a rank prints about its debugger, into its own output
    identity     the rank and run of a World, also before it has groups and after
    deaths       tells the user at a prompt which other ranks have died meanwhile

Clients

    desk         requests of a client and answers of the rank, between two threads
    console      where a prompt is: at a client of the desk, or at the terminal of this process
    keyboard     the terminal of this process as an input;  given_input: what it was given as stdin
    serve        the sockets of the ranks of this process;  protocol: what goes over them
    client       the other end;  interaction: a person or a script there

Everything here is loaded when a debugger is needed, and not before. Standard library only.
"""
