"""The user's question: one matrix product C = A·B and how its operands lie in memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from solver.errors import InvalidProblem

MAX_EXTENT = 2**31 - 1
MAX_VOLUME = 2**60
ELEMENT_BYTES = {"bf16": 2, "fp16": 2}
LAYOUTS = ("tn",)
CACHES = ("cold", "warm")
"""Where A and B are before the launch: in device memory, or in the L2 already."""


@dataclass(frozen=True, slots=True)
class Problem:
    """C[m, n] = A[m, k] · B[k, n], fp32 accumulation.

    ``layout`` follows CUTLASS: first letter A as MxK, second B as KxN; ``tn`` has A
    row-major and B column-major, so that both are contiguous in k. C is row-major.

    Raises InvalidProblem for a value outside the limits, naming the field.
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    layout: str = "tn"

    def __post_init__(self) -> None:
        for field in ("m", "n", "k"):
            value = getattr(self, field)
            if type(value) is not int:
                raise InvalidProblem(field, f"must be an integer, got {type(value).__name__}")
            if not 1 <= value <= MAX_EXTENT:
                raise InvalidProblem(
                    field, f"must be between 1 and {MAX_EXTENT} (2^31 - 1), got {value}"
                )
        if self.m * self.n * self.k > MAX_VOLUME:
            raise InvalidProblem("m", f"m*n*k must be at most 2^60, got {self.m * self.n * self.k}")
        if self.dtype not in ELEMENT_BYTES:
            raise InvalidProblem(
                "dtype", f"must be one of {', '.join(ELEMENT_BYTES)}, got {self.dtype!r}"
            )
        if self.layout not in LAYOUTS:
            raise InvalidProblem(
                "layout", f"must be one of {', '.join(LAYOUTS)}, got {self.layout!r}"
            )

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of A, B and C."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def flops(self) -> int:
        """Floating-point operations, a multiply-add counted as two."""
        return 2 * self.m * self.n * self.k

    @property
    def operand_bytes(self) -> int:
        """Bytes of A, B and C together: what must be held in device memory."""
        return self.element_bytes * (self.m * self.k + self.k * self.n + self.m * self.n)

    def to_dict(self) -> dict[str, Any]:
        """The problem under its own field names."""
        return asdict(self)
