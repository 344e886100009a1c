"""TLS for the connections of a run, where DISTDBG_TLS=1: nobody in between can read or change them.

    settings.py      what the variables ask for
    contexts.py      which certificates are shown and trusted: the run's own, derived from its token, or files
    channel.py       one connection: plain bytes on one side, TLS on the other
    relay.py         the thread that carries the bytes of all connections of this process
    guard.py         what servers and clients ask for: a connection that is encrypted, or as it was

Nothing here is imported by more than a look at the variable where it is not set.
"""
