"""Answers to dashboards about the ranks of one host, from their records, on request.

    methods    the methods of the API, and their arguments, checked
    counts     ops by group and kind, since the groups were made
    bars       the newest ops of each rank, for a timeline
    one_op     one op on all ranks
    one_rank   one rank, with its newest ops
    op_json    ops and groups as plain values that JSON can hold
    clock      how this host's times become those of the job
    kept_log   what the ranks have printed
    gpus       GPU use of processes of this host, from NVIDIA's management library; empty without it

Everything is bounded and nothing is worked out that nobody asks for. An answer takes some milliseconds at
most for a hundred ranks, as the agent does nothing else meanwhile. Whoever wants the whole job asks every
host and puts the answers together: `client/live_feed.py` does.
"""
