"""The backend "distdbg" of torch.distributed: torch's groups over ours.

group        DistdbgProcessGroup: torch's names for the ops, on the Calls of the runtime
collectives  the ops that all ranks call together; options.py, tensors.py: how torch hands them over
work         its Work, and the future of one
creation     makes them, and our world with the first
sparse       all_reduce of sparse tensors
patches      functions of torch that know their own backends only
options      what an op was asked for
tensors      the lists in which torch hands over tensors
"""
