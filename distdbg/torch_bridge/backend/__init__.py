"""The backend "distdbg" of torch.distributed: torch's groups over ours.

group.py        DistdbgProcessGroup: torch's names for the ops, on the Calls of the runtime
collectives.py  the ops that all ranks call together; options.py, tensors.py: how torch hands them over
work.py         its Work, and the future of one
creation.py     makes them, and our world with the first
sparse.py       all_reduce of sparse tensors
patches.py      functions of torch that know their own backends only
"""
