"""The control page: one small file per run and host that every wait of every rank reads.

    layout                      the bytes, as native/core/control.hpp has them
    words                       the texts of an abort
    holds                       who has paused the clock
    state                       the page as bytes, and its content
    page                        making, reading and writing the page
    clock                       the clock that a rank's waits read
    break_fields, breakpoints   the rules by which ranks stop: their words; as text and in the page
    sockets                     Unix sockets at paths of any length, for clients
    dialled_address             what proofs of a connection are about: a purpose, a run, the address dialled

The page is written by observers (the agent, the commands) and read by ranks. A rank writes one thing: that
it is in a debugger, so the clock is paused.
"""
