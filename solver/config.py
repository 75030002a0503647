"""One point of a family's space: what the solver chooses and the kernel is built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from solver.errors import IllegalConfig


@dataclass(frozen=True, slots=True, order=True)
class Config:
    """A configuration of a warp-specialised kernel. Field order is the last tie-break.

    tile_m, tile_n, tile_k  elements of the output tile and of one k-iteration
    stages                  slots of the shared-memory ring, one A+B tile pair each
    mma_in_flight           wgmma groups a MATH warpgroup leaves running (0 or 1); with 1
                            a slot is released one iteration late
    dma_warps               warps that issue loads (1: A and B in turn, 2: one each)
    math_warpgroups         warpgroups of 128 threads that multiply, tile_m split among them
    register_split          1: DMA warps padded to a warpgroup and registers moved from it to
                            the MATH warpgroups with setmaxnreg; 0: one register count for all
    cluster_m, cluster_n    CTAs of a cluster along each axis
    split_k                 CTAs that share one output tile's k range
    raster_group            rows of tiles walked together, for L2 reuse
    """

    family: str
    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    mma_in_flight: int = 0
    dma_warps: int = 1
    math_warpgroups: int = 1
    register_split: int = 0
    cluster_m: int = 1
    cluster_n: int = 1
    split_k: int = 1
    raster_group: int = 1

    def to_dict(self) -> dict[str, Any]:
        """The configuration under its own field names."""
        return asdict(self)

    def to_columns(self) -> dict[str, int]:
        """The fields that tables hold as columns: all but the family."""
        return {name: getattr(self, name) for name in _CODE_BITS}

    @property
    def code(self) -> int:
        """The fields packed into 63 bits, in an order equal to field order: the prover breaks ties
        by it. Raises ValueError for a field that doesn't fit."""
        return packed(self.to_columns(), _CODE_BITS)

    @classmethod
    def from_dict(cls, values: Any) -> Config:
        """A configuration from its own field names.

        Raises IllegalConfig for an unknown or missing field or a value of the wrong type.
        """
        if not isinstance(values, dict):
            raise IllegalConfig("config", f"must be an object, got {type(values).__name__}")
        names = [f.name for f in fields(cls)]
        for name in values:
            if name not in names:
                raise IllegalConfig(
                    name, f"is no configuration field; there are {', '.join(names)}"
                )
        for name in ("family", "tile_m", "tile_n", "tile_k", "stages"):
            if name not in values:
                raise IllegalConfig(name, "is required")
        for name, value in values.items():
            expected = str if name == "family" else int
            if type(value) is not expected:
                raise IllegalConfig(
                    name, f"must be {expected.__name__}, got {type(value).__name__}"
                )
        return cls(**values)


_CODE_BITS = {
    "tile_m": 10,
    "tile_n": 10,
    "tile_k": 10,
    "stages": 4,
    "mma_in_flight": 1,
    "dma_warps": 3,
    "math_warpgroups": 3,
    "register_split": 1,
    "cluster_m": 4,
    "cluster_n": 4,
    "split_k": 7,
    "raster_group": 6,
}


def packed(values: Mapping[str, int], bits: Mapping[str, int]) -> int:
    """Fields packed into one integer, each in so many bits, the first field highest.

    Raises ValueError for a field that doesn't fit.
    """
    code = 0
    for name, width in bits.items():
        value = values[name]
        if not 0 <= value < 1 << width:
            raise ValueError(f"{name}={value} does not fit in {width} bits")
        code = code << width | value
    return code
