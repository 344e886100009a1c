"""Device meshes: the ranks of a job as an array, with a group for each line along each of its dimensions.

layout       which ranks lie along which dimension; slices, flattened and split dimensions; pure
device_mesh  DeviceMesh: a layout with its groups
create       init_device_mesh, and the groups of each dimension
agreement    whether all ranks make the same mesh
telling      which group serves which dimension, for the record
groups       the groups of a mesh
"""

from distdbg.runtime.mesh.create import init_device_mesh
from distdbg.runtime.mesh.device_mesh import DeviceMesh

__all__ = ["DeviceMesh", "init_device_mesh"]
