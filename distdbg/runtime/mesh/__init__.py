"""Device meshes: the ranks of a job as an array, with a group for each line along each of its dimensions.

layout       which ranks lie along which dimension; slices, flattened and split dimensions; pure
device_mesh  DeviceMesh: a layout with its groups
telling      which group serves which dimension, for the record
groups       the groups of a mesh
"""

from distdbg.runtime.mesh.device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
