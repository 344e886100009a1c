"""A session at any moment of its time, fast enough to be scrubbed through. Pure.

    moments         which ops of a rank were in flight at a moment, by a few bisections; moments to jump to
    ranks           ranks and groups as rows of a snapshot
    ops             the table of ops, up to a moment
    bars            ops as bars of a timeline; of very many in one place those that matter
    details         one op, one rank, stacks

`replay_feed` puts them together. The verdict at a moment is that of `diagnose.as_of`.
"""
