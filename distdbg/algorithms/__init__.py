"""What torch.distributed.algorithms has of training with uneven inputs: `distdbg.algorithms.join`."""
