"""The backend "distdbg" of torch.distributed: torch's groups over ours.

group        DistdbgProcessGroup: torch's names for the ops, on the Calls of the runtime
collectives  the ops that all ranks call together; tensors.py: how torch hands them over
work         its Work, and the future of one
creation     makes them, and our world with the first
tensors      the lists in which torch hands over tensors
"""
