"""Device meshes: the ranks of a job as an array, with a group for each line along each of its dimensions.

layout.py       which ranks lie along which dimension; slices, flattened and split dimensions; pure
device_mesh.py  DeviceMesh: a layout with its groups
create.py       init_device_mesh, and the groups of each dimension
agreement.py    whether all ranks make the same mesh
telling.py      which group serves which dimension, for the record
"""

from distdbg.runtime.mesh.create import init_device_mesh
from distdbg.runtime.mesh.device_mesh import DeviceMesh

__all__ = ["DeviceMesh", "init_device_mesh"]
