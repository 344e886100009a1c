"""Dumps as torch's flight recorder writes them, so that torch's own analyzer can look at a run of ours.

spelling.py   what torch calls a kind, a dtype and the sizes of a call
whole_ops.py  of which ops and messages every side is known
entries.py    the entries of one rank
dumps.py      the folder: one file per rank, a pickle that grows
"""
