"""Compares what ranks must agree on and tells how they differ: facts in, errors and words out.

Nothing here knows a group, a store or an engine, or waits for anybody: the runtime asks.

signature          what of a call must be equal on all ranks, and its fingerprint
show               these facts as messages show them
explain            the ranks' own descriptions of their calls, made into one error
group_differences  the errors of ranks that make different groups
options            what a group checks beside the calls: NaN and Inf, checksums, buffers, order
arrays, suspicion  what the options find, in words
short_batch        whether an array that differs looks like a last batch that is shorter than the
                   others
latent             mistakes that have done no harm yet, told once per line by the rank itself
sample             a checksum of some of an array's bytes, cheap enough for every asynchronous op
"""
