"""Checks of ops: what ranks must agree on, how differences are found and reported.

signature                  what of a call must be equal on all ranks, and its fingerprint
blocks                     coalesced blocks, compared as a whole
sites, show                call sites and facts as messages show them
explain                    the ranks' own descriptions of their calls, made into one error
levels                     OFF, INFO, DETAIL, for all groups of a rank
log_levels, logs, tracing  log levels, the log with ranks, each op as a line
monitored_barrier, tree    a barrier that names the missing ranks
absent                     where missing ranks are
options                    what a group checks beside the calls: NaN and Inf, checksums, buffers, order
arrays, suspicion          what the options find, in words
assert_same                assert_same
membership                 whether ranks make the same groups in the same order
abandoned                  made again and again by one line, and no longer reachable by the program
foreign                    checks for other backends, by a control group of our own beside the backend
latent                     mistakes that have done no harm yet, reported once per line by the rank itself
lost_members               which member of a group has died or left, for waits outside of the data plane
out_of_batches             adds to an error that a rank ran out of batches, where the records of this
                           host's ranks prove it
sample                     A checksum of some of an array's bytes, cheap enough for every asynchronous op
short_batch                whether an array that differs looks like a last batch that is shorter than the
                           others
unwaited                   asynchronous ops that nobody has waited for yet
foreign/            the same for other backends
"""
