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

announce     the lines that a rank prints about its debugger, into its own output
breaking     asks the rules before each op of a group, and about its error
console      where a debugger's prompt is: at a client of the desk, or at the terminal of this process
deaths       tells the user at a prompt which other ranks have died meanwhile, from ends-<host>.jsonl
evaluation   one expression of a client, in a thread of its own
foreign      which one is used, and how its prompt opens at the user's frame
given_input  what a rank was given as stdin
identity     the rank and run of a World, also before it has groups and after
keyboard     the terminal of this process as an input
nan          finds NaN and Inf in the inputs of an op
on_signal    stops a rank at SIGUSR1, while a rule asks for it and the program has no handler of its own
op_facts     an op as breakpoint rules see it; expensive fields are computed on demand
outcome      how a stop in the debugger ended, and the error of a rank whose debugger was quit
protocol     the protocol between the debugger of a rank and its clients
stop_op      A stop at a prompt is an op of its own in the record of the rank
stopper      stops one running rank when a client asks for it
stopping     carries out one stop of a rank
streams      redirects the output of one thread to the prompt, while it executes a statement typed there
"""
