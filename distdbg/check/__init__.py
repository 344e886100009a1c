"""Checks of ops: what ranks must agree on, how differences are found and reported.

facts.py            what of a call must be equal on all ranks, and its fingerprint
blocks.py           coalesced blocks, compared as a whole
sites.py show.py    call sites and facts as messages show them
explain.py          the ranks' own descriptions of their calls, made into one error
levels.py           OFF, INFO, DETAIL, for all groups of a rank
log_levels.py logs.py tracing.py    log levels, the log with ranks, each op as a line
monitored_barrier.py tree.py        a barrier that names the missing ranks
absent.py           where missing ranks are
options.py          what a group checks beside the calls: NaN and Inf, checksums, buffers, order
arrays.py suspicion.py    what the options find, in words
same.py             assert_same
membership.py       whether ranks make the same groups in the same order
foreign/            the same for other backends
"""
