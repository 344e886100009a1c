"""Finds the memory of the user's arrays, on which native code works.

buffers        an array as a View, to read or to write; copies where it is not contiguous
capture        the capture of a CUDA graph: no op of ours has a place in one
device_arrays  arrays in the memory of a CUDA device, as planning and checking see them
device_wait    blocks the host until a GPU has done all that is queued
torch_arrays   tensors of PyTorch on the CPU, without ever importing torch
memory_room    how much memory this host, or the cgroup of this process, has, and how much is free
"""
