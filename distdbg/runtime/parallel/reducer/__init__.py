"""The gradient reducer of data parallel training, for arrays of any library.

parameters.py  a Parameter: name, dtype and shape of what has a gradient; pure
buckets.py     which parameters share a bucket, and in which order buckets are reduced; pure
names.py       the words for buckets and lists of parameters; pure
arrays.py      what a reducer needs of a library's arrays, and NumPy's form of it
bucket.py      a Bucket of the reducer, and the GradBucket that comm hooks see
counts.py      what a rank did between two passes; pure
status.py      what ranks tell each other at the end of each pass
hooked.py      how a comm hook is called, and what follows where it raises
agreement.py   whether all ranks have the same model; errors of ops in DDP's words; pure
exchange.py    what ranks tell each other after a pass that was unusual
partial.py     which gradients have come, over several backward passes; pure
pass_report.py  what one rank saw in one pass; plain values
passes.py      whether all ranks did the same in a pass; pure
construction.py  the comparison of models and values when a reducer is made
measures.py    times of forward, backward and communication, and the facts of the log
reducer.py     the Reducer: gradients in, averages out, while the backward pass still runs

A pass: ready(i, gradient) for each parameter, in any order, then finish(). A bucket whose gradients are all
there is reduced at once, by an asynchronous all_reduce, unless one before it is not complete. finish()
reduces what is left, and then all ranks tell each other in one small all_reduce whether anything was unusual:
a parameter without a gradient, a forward pass without a backward pass. Only then they exchange names.
"""
