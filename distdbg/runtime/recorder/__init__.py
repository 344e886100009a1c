"""The record of a rank, and its ops in torch's profilers.

recording       begun by init_process_group, ended with the process
recorded_waits  calls that may wait outside of the engines: new_group, monitored_barrier
trace_context   the span of the user's own traces that a thread is in: the parent of its ops
torch_profiler  whether one of PyTorch's profilers runs
profiled_ops    shows each op in it
"""
