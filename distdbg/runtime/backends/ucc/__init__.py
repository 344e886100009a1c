"""UCC, the Unified Collective Communication library, through ctypes: `backend="ucc"`. Experimental.

library     libucc: its structures as far as they are filled here, its functions, and whether it is here
team        a team for each group; what its members exchange to find each other goes through the group's store
memory      arrays as UCC takes them: one piece of memory on the host or on a GPU
backend     the collectives, by torch's names
messages    the engine of ours that carries messages, which UCC has none of
engine      all of it as an Engine
"""
