"""Random programs run by torch gloo and by distdbg, which must give the same results.

quirks.py       what gloo cannot do or does wrong, so that no program asks for it
values.py       the contents of arrays: exact in every dtype, so results compare bit for bit
programs.py     the random programs (hypothesis), and which programs are legal
script.py       a program as Python that a person can read
interpret.py    runs a program on one rank against a module with torch.distributed's API
collectives.py  the steps in which a whole group takes part
messages.py     point to point steps, and the object forms
illegal.py      calls that one rank alone can see to be wrong
worker.py       the process of one rank: programs come by a pipe, results leave by another
pool.py         the ranks of one library, kept alive over many programs
compare.py      what differs between the results of two libraries
"""
