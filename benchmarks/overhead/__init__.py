"""`python -m benchmarks.overhead`: what the record and the check cost, beside torch gloo's DETAIL.

contests.py        what is compared with what: subjects, cases, world sizes
rank.py            the program of every rank: obeys, measures, answers
rank_processes.py  the ranks of one library with one environment, kept alive beside the others
measure.py         the turns: who is measured after whom, so that a drift of the machine hits all alike
judge.py           from times to differences, targets met or missed; pure
report.py          from those to the tables of the page; pure
"""
