"""Groups over MPI: `backend="mpi"`. The only place that imports mpi4py, and only when it is asked for.

available                            whether mpi4py and its library are here, asked without starting MPI
library, starting, leaving           MPI of this process: how it is started, and how left without hanging
joining                              who the ranks are, and a store for them, told over MPI
communicators                        a communicator for each group
datatypes, reductions                what MPI has, and what it lacks (bfloat16, float8, MIN that keeps
                                     NaN)
memory, collectives, messages, wide  from a Call to requests of MPI
pending, patience                    an op in flight, and who looks after it
any_source                           receives from any rank where MPICH loses them
failures                             what an error of MPI says
engine                               all of it as an Engine
on_gpus                              arrays on a GPU
"""
