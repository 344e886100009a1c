"""What torch's training wrappers know of an op, told to the record beside it.

naming.py    gives the ops of a block such a name
model.py     one DistributedDataParallel: its buckets, how far they are, who got no gradient
ddp.py       the patches of DDP
fsdp.py      the patches of FSDP2
meshes.py    which group serves which dimension of a DeviceMesh
batches.py   marks of a DataLoader's batches, and of its end
passes.py    spans of forward, backward and optimizer; steps

Nothing here sends anything or waits. What a version of torch does not have is left alone: the ops are
recorded all the same, without a name.
"""

from __future__ import annotations

from distdbg.torch_bridge.training.patching import patch

__all__ = ["patch"]
