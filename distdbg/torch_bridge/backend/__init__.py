"""The backend "distdbg" of torch.distributed: torch's groups over ours.

group        DistdbgProcessGroup: torch's names for the ops, on the Calls of the runtime
collectives  the ops that all ranks call together
work         its Work, and the future of one
creation     makes the groups, and our world with the first; patches functions of torch that know its own
             backends only
"""
