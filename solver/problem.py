"""The user's question: one matrix product C = A·B and how its operands lie in memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from solver.errors import InvalidProblem
from solver.limits import check_choice, check_integer

MAX_EXTENT = 2**31 - 1
MAX_EXTENT_WORDS = f"{MAX_EXTENT} (2^31 - 1)"
MAX_VOLUME = 2**60
ELEMENT_BYTES = {"bf16": 2, "fp16": 2}
OUT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
LAYOUTS = ("tn", "nn", "nt", "tt")
VECTOR_BYTES = 16
"""What a copy engine or a wide load takes at a time; offsets are told modulo this."""
CACHES = ("cold", "warm")
"""Where A and B are before the launch: in device memory, or in the L2 already."""


def is_k_major(layout: str) -> tuple[bool, bool]:
    """Whether A, and whether B, is contiguous along k."""
    return layout[0] == "t", layout[1] == "n"


@dataclass(frozen=True, slots=True)
class Matrix:
    """How one operand lies in memory: ``lines`` of ``length`` contiguous elements, ``pitch``
    elements from one line to the next, the first ``offset`` elements past a 16-byte boundary."""

    lines: int
    length: int
    pitch: int
    offset: int
    element_bytes: int

    @property
    def elements(self) -> int:
        """Elements from the first to the last, gaps between lines included."""
        return (self.lines - 1) * self.pitch + self.length

    @property
    def aligned(self) -> bool:
        """Whether every line starts on 16 bytes."""
        starts = self.offset if self.lines == 1 else self.offset | self.pitch
        return starts * self.element_bytes % VECTOR_BYTES == 0


@dataclass(frozen=True, slots=True)
class Operands:
    """A[m, k], B[k, n] and C[m, n]: their extents, their types and how they lie in memory.

    ``layout`` follows CUTLASS: first letter A as MxK, second B as KxN; t is row-major, n
    column-major. C is row-major. ``tn`` has both operands contiguous in k, ``tt`` is what
    PyTorch's ``a @ b`` has. ``out_dtype`` is C's type, ``dtype`` where omitted. ``lda``,
    ``ldb`` and ``ldc`` are pitches in elements between rows (t) or columns (n), packed where
    omitted. ``a_offset``, ``b_offset`` and ``c_offset`` count the elements between a 16-byte
    boundary and an operand's first.

    Raises InvalidProblem for a value outside the limits, naming the field.
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    layout: str = "tn"
    out_dtype: str | None = None
    lda: int | None = None
    ldb: int | None = None
    ldc: int | None = None
    a_offset: int = 0
    b_offset: int = 0
    c_offset: int = 0

    def __post_init__(self) -> None:
        for field in ("m", "n", "k"):
            self._check_integer(field, 1, MAX_EXTENT, high_words=MAX_EXTENT_WORDS)
        if self.out_dtype is None:
            object.__setattr__(self, "out_dtype", self.dtype)
        for field, values in (
            ("dtype", tuple(ELEMENT_BYTES)),
            ("layout", LAYOUTS),
            ("out_dtype", tuple(OUT_BYTES)),
        ):
            check_choice(field, getattr(self, field), values, InvalidProblem)
        a_by_k, b_by_k = is_k_major(self.layout)
        for field, packed, name in (
            ("lda", self.k if a_by_k else self.m, "k" if a_by_k else "m"),
            ("ldb", self.k if b_by_k else self.n, "k" if b_by_k else "n"),
            ("ldc", self.n, "n"),
        ):
            if getattr(self, field) is None:
                object.__setattr__(self, field, packed)
            self._check_integer(
                field,
                packed,
                MAX_EXTENT,
                low_words=f"{name} = {packed}",
                high_words=MAX_EXTENT_WORDS,
            )
        for field, size in (
            ("a_offset", self.element_bytes),
            ("b_offset", self.element_bytes),
            ("c_offset", self.out_bytes),
        ):
            self._check_integer(field, 0, VECTOR_BYTES // size - 1)

    def _check_integer(self, field: str, low: int, high: int, **words: str) -> None:
        check_integer(field, getattr(self, field), low, high, **words, error=InvalidProblem)

    @property
    def a_is_k_major(self) -> bool:
        """Whether A is read along k: where it is contiguous so, unless its lines are of one
        element and follow one another, which makes one line along m of them; and back."""
        packed = self.lda in (None, 1)
        if is_k_major(self.layout)[0]:
            return not (packed and self.k == 1 < self.m)
        return packed and self.m == 1

    @property
    def b_is_k_major(self) -> bool:
        """Whether B is read along k, as A is."""
        packed = self.ldb in (None, 1)
        if is_k_major(self.layout)[1]:
            return not (packed and self.k == 1 < self.n)
        return packed and self.n == 1

    @property
    def kernel_layout(self) -> str:
        """The layout a kernel sees: ``layout``, or one that reads the same in longer lines."""
        return ("t" if self.a_is_k_major else "n") + ("n" if self.b_is_k_major else "t")

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of A and B."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def out_bytes(self) -> int:
        """Bytes of one element of C."""
        return OUT_BYTES[self.out]

    @property
    def out(self) -> str:
        """C's type, never None."""
        return self.out_dtype or self.dtype

    @property
    def a(self) -> Matrix:
        """How A lies in memory."""
        lines, length = (self.m, self.k) if self.a_is_k_major else (self.k, self.m)
        return Matrix(lines, length, max(self.lda or 0, length), self.a_offset, self.element_bytes)

    @property
    def b(self) -> Matrix:
        """How B lies in memory."""
        lines, length = (self.n, self.k) if self.b_is_k_major else (self.k, self.n)
        return Matrix(lines, length, max(self.ldb or 0, length), self.b_offset, self.element_bytes)

    @property
    def c(self) -> Matrix:
        """How C lies in memory."""
        return Matrix(self.m, self.n, self.ldc or self.n, self.c_offset, self.out_bytes)

    @property
    def operand_bytes(self) -> int:
        """Bytes of A's, B's and C's elements together: what a launch must read and write."""
        inputs = self.element_bytes * (self.m * self.k + self.k * self.n)
        return inputs + self.out_bytes * self.m * self.n

    @property
    def storage_bytes(self) -> int:
        """Bytes from first to last element of A, B and C together: what device memory holds."""
        return sum(x.elements * x.element_bytes for x in (self.a, self.b, self.c))

    def to_dict(self) -> dict[str, Any]:
        """The fields under their own names, pitches and output type filled in."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Problem(Operands):
    """C[m, n] = A[m, k] · B[k, n], fp32 accumulation: operands that are to be multiplied.

    Raises InvalidProblem as Operands do, and for more multiply-adds than times in 64 bits allow.
    """

    def __post_init__(self) -> None:
        Operands.__post_init__(self)  # slots=True makes the class anew: no super() without names
        if self.m * self.n * self.k > MAX_VOLUME:
            raise InvalidProblem("m", f"m*n*k must be at most 2^60, got {self.m * self.n * self.k}")

    @property
    def flops(self) -> int:
        """Floating-point operations, a multiply-add counted as two."""
        return 2 * self.m * self.n * self.k
