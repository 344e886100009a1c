"""What torch's training wrappers know of an op, told to the record beside it.

naming      gives the ops that are issued inside a `with` block a name
ddp_model   one DistributedDataParallel: its buckets and their names, how far they are, who got no gradient
ddp         the patches of DDP
batches     marks of a DataLoader's batches, and of its end
passes      spans of forward, backward and optimizer; steps
patching    applies the patches, those of FSDP and of meshes too, once in a process; what cannot be patched is
            left alone, with a line in the log

Nothing here sends anything or waits. What a version of torch does not have is left alone: the ops are
recorded all the same, without a name.
"""

from __future__ import annotations

from distdbg.torch_bridge.training.patching import patch

__all__ = ["patch"]
