"""A long random legal program on some ranks: nothing may be found, and nothing may grow.

    python -m benchmarks.soak [--ops 1000000] [--ranks 4] [--seed 1]

draw.py      what all ranks draw alike, and what each rank's arrays hold
ops.py       one step with collectives
messages.py  one step with messages or objects
pool.py      the process groups that are alive, made and destroyed on the way
walk.py      the program of every rank
audit.py     what a rank holds, and what its record says, at a quiet moment
__main__.py  starts the ranks and judges what they report

Every rank draws the same steps, also those of groups that it is not in. A rank decides alone only what
is its own business: when it waits for what it has started, its level, its marks.

Why no program deadlocks: all ranks start the ops of a group in the order of the steps, and a rank that
waits for the op of step k is itself past step k. So of all ranks that wait, the one whose op is the
earliest has every other member past that step as well, and its op completes.
"""
