"""What ranks must agree on, how a difference is found, and how it is told.

facts.py            what of a call must be equal on all ranks, and its fingerprint
blocks.py           coalesced blocks, compared as a whole
sites.py show.py    call sites and facts as messages show them
explain.py          the ranks' own descriptions of their calls, made into one error
"""
