"""Random right programs under `distdbg run`, with the agent on: nothing may be said of any of them.

    python -m benchmarks.quiet [--minutes 10] [--seed 1] [--side-by-side 2] [--only NAME,..]

program.py   what every rank does: `program.py SEED STEPS [NAME,..]`
steps.py     the steps: ops on groups that overlap, messages, threads, groups and ranks that end early
pauses.py    what keeps one rank busy while the others wait
judge.py     runs one job, and says what was wrongly said of it
__main__.py  runs many, and the right programs of the catalogue

In every third program half of the ranks are stopped now and then wherever they are; every tenth has 16 ranks.

A false verdict is an abort, a line of the agent, a verdict.json with an error or a warning, or such a
finding in what `diagnose` says of the records later. Of a rank that was stopped for a second a line may be
there, when it is taken back.
"""
