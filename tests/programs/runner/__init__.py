"""Runs the catalogue of programs (`../right`, `../wrong`) and scores what came out.

truth.py      what a program says about itself: its TRUTH and the marks behind its lines
zygote.py     a process that has imported the library and forks the ranks of one program
rank.py       what one forked rank does: the program, watched, and its outcome as JSON
torch_numpy.py  the few names of NumPy that the programs use, as tensors
pool.py       several zygotes side by side
score.py      truth against outcome: a list of complaints, empty when all is right
"""
