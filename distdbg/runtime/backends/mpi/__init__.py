"""Groups over MPI: `backend="mpi"`. The only place that imports mpi4py, and only when it is asked for.

available.py                    whether mpi4py and its library are here, asked without starting MPI
library.py leaving.py           MPI of this process: how it is started, and how left without hanging
joining.py                      who the ranks are, and a store for them, told over MPI
communicators.py                a communicator for each group
datatypes.py reductions.py      what MPI has, and what it lacks (bfloat16, float8, MIN that keeps NaN)
memory.py collectives.py messages.py wide.py    from a Call to requests of MPI
pending.py progress.py patience.py              an op in flight, and who looks after it
any_source.py                   receives from any rank where MPICH loses them
failures.py                     what an error of MPI says
engine.py                       all of it as an Engine
"""
