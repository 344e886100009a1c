"""What torch.distributed.device_mesh has: `from distdbg.device_mesh import init_device_mesh`."""

from distdbg.runtime.mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
