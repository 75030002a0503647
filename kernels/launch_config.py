"""The driver's launch configurations. Needs the driver's bindings, not a context."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

_Attribute = driver.CUlaunchAttributeID


def launch_config(
    grid: int, threads: int, smem_bytes: int = 0, *, cluster: int = 1, overlaps: bool = False
) -> Any:
    """A one-dimensional launch, all but its stream.

    ``overlaps``: it may begin while the launch before it in the stream runs, and waits for the end
    of that itself. ``cluster``: CTAs of a cluster.
    """
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes = smem_bytes
    attributes = []
    if overlaps:
        overlap = driver.CUlaunchAttribute()
        overlap.id = _Attribute.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        overlap.value.programmaticStreamSerializationAllowed = 1
        attributes.append(overlap)
    if cluster > 1:
        shape = driver.CUlaunchAttribute()
        shape.id = _Attribute.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dimension = shape.value.clusterDim
        dimension.x, dimension.y, dimension.z = cluster, 1, 1
        attributes.append(shape)
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config
