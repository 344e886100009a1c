"""Debuggers in ranks: a prompt in the thread of a rank, whoever types there, from wherever.

    session.py     stop_here: a rank stops, is debugged, and goes on
    rank_pdb.py    pdb with the user's frames alone and a prompt that anybody may bring
    terminal.py    any other debugger, on a terminal of its own that a client sees
    desk.py        what a client says and what the rank answers, between two threads
    serve.py       the sockets of the ranks of this process
    interrupt.py   stops a rank that runs
    evaluate.py    values as short texts
    client.py      the other end

Everything here is loaded when a debugger is needed, and not before.
"""
