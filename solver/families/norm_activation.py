"""The norm_activation family: rows normalised, scaled, shifted and transformed, in one kernel.

What a problem and a configuration are. The CUDA sources are ``kernels/cuda/norm_*.cuh``;
``norm_activation_block`` says how rows come in chunks and what a block takes,
``norm_activation_legality`` what is legal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from solver.config import packed
from solver.elementwise import smallest
from solver.errors import IllegalConfig, InvalidProblem
from solver.limits import check_choice, check_integer
from solver.occupancy import REGISTERS_MAX

NAME = "norm_activation"

WARP = 32
WARPGROUP_WARPS = 4
VECTOR_BYTES = 16
MAX_ROWS = 2**31 - 1
MAX_WIDTH = 65536
MAX_ELEMENTS = 2**40
MAX_DEGREE = 1024
ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
NORMS = ("layer", "rms")
ACTIVATIONS = ("gelu", "gelu_tanh", "silu", "poly")
NORM_FMAS = {"layer": 6, "rms": 4}
"""Issue slots of an element, as multiply-adds, for statistics in two passes and scale and shift:
counted off ``norm_rows.cuh``."""
ACTIVATION_FMAS = {"gelu": 25, "gelu_tanh": 9, "silu": 5, "poly": 2}
"""As NORM_FMAS, of the transformation; a poly's degree comes on top. Counted off ``norm_math.cuh``;
gelu, whose erff branches, measured: in bf16 it takes as long as a poly of degree 24 to 27 on one
H200."""
PLAIN_PASSES = {"layer": 3, "rms": 2}
"""How often a plain kernel reads a row: for its mean and its squares, and to transform it."""
BATCH = 8  # elements that a lane transforms together (norm_math.cuh)
WORDS_MAX = 64  # registers of a lane that hold its share of a row
RING_WORDS_MAX = 48  # the same with a ring; with more ptxas spills, whatever the limit

KINDS = ("plain", "strong", "ring", "specialised")
COPIES = ("bulk", "async", "vector")
BARRIERS = ("mbarrier", "named")
HOLDS = ("registers", "shared", "reload")
STORES = ("vector", "bulk")
WORDS = {
    "kind": tuple(sorted(KINDS)),
    "copies": tuple(sorted(COPIES)),
    "barrier": tuple(sorted(BARRIERS)),
    "hold": tuple(sorted(HOLDS)),
    "stores": tuple(sorted(STORES)),
}
"""The words of a field in the order in which configurations compare: their codes in columns."""
SPLIT_REGISTERS = {(4, 12): (56, 152), (8, 8): (56, 200), (4, 4): (56, 200)}
"""(producers, consumers): registers of a thread of each role once setmaxnreg has moved them; all
threads are launched with 128."""
SPLIT_LAUNCH_REGISTERS = 128


def check_rows(rows: int) -> None:
    """Raise InvalidProblem unless there is something to launch: a kernel takes no rows, a question
    has some."""
    check_integer("rows", rows, 1, MAX_ROWS, error=InvalidProblem)


@dataclass(frozen=True, slots=True)
class NormProblem:
    """y = activation(normalised(x)·scale + shift) of ``rows`` rows of ``width`` elements.

    layer: normalised(x) = (x - mean) / sqrt(variance + eps); rms: x / sqrt(mean of squares + eps);
    each over its row. ``scale`` and ``shift`` have ``width`` elements of ``dtype``. ``degree`` is
    poly's: y = s·Σ c_k (s/8)^k for k = 0 to degree, s within ±8, c_k = (-1)^k / (k+1)²; 0 with the
    others.

    Raises InvalidProblem for a value outside the limits, naming the field.
    """

    rows: int
    width: int
    dtype: str = "fp32"
    norm: str = "layer"
    activation: str = "gelu"
    degree: int = 0

    def __post_init__(self) -> None:
        check_integer("rows", self.rows, 0, MAX_ROWS, error=InvalidProblem)
        check_integer("width", self.width, 1, MAX_WIDTH, error=InvalidProblem)
        for field, choices in (
            ("dtype", tuple(ELEMENT_BYTES)),
            ("norm", NORMS),
            ("activation", ACTIVATIONS),
        ):
            check_choice(field, getattr(self, field), choices, InvalidProblem)
        check_integer("degree", self.degree, 0, MAX_DEGREE, error=InvalidProblem)
        if self.degree and self.activation != "poly":
            raise InvalidProblem(
                "degree",
                f"must be 0 unless activation is poly, got {self.degree} with {self.activation}",
            )
        if self.rows * self.width > MAX_ELEMENTS:
            raise InvalidProblem(
                "rows", f"rows*width must be at most 2^40, got {self.rows * self.width}"
            )

    @classmethod
    def asked(cls, rows: int, **members: Any) -> NormProblem:
        """The problem of a question, which has rows. Raises InvalidProblem as the class does."""
        check_rows(rows)
        return cls(rows, **members)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row; rows follow one another without gaps."""
        return self.width * self.element_bytes

    @property
    def storage_bytes(self) -> int:
        """Bytes that a launch must read and write: x, y, scale and shift."""
        return 2 * (self.rows + 1) * self.row_bytes

    @property
    def fmas(self) -> int:
        """Multiply-adds of a launch, NORM_FMAS and ACTIVATION_FMAS of each element."""
        each = NORM_FMAS[self.norm] + ACTIVATION_FMAS[self.activation] + self.degree
        return self.rows * self.width * each

    def to_dict(self) -> dict[str, Any]:
        """The fields under their own names."""
        return asdict(self)


class Fields:
    """What follows from the fields of a configuration: of one, in plain numbers, or of columns of
    them, element by element."""

    __slots__ = ()
    kind: Any
    consumers: Any
    producers: Any
    groups: Any
    team: Any
    vector_bytes: Any
    depth: Any
    chunk_bytes: Any
    blocks_per_sm: Any
    register_split: Any

    def is_one_of(self, field: str, *words: str) -> Any:
        """Whether a field is one of these words."""
        raise NotImplementedError

    @property
    def has_ring(self) -> Any:
        """Whether chunks come through shared memory."""
        return self.is_one_of("kind", "ring", "specialised")

    @property
    def warps(self) -> Any:
        """Warps of a block."""
        return self.producers + self.consumers

    @property
    def threads(self) -> Any:
        """Threads of a block."""
        return self.warps * WARP

    @property
    def group_warps(self) -> Any:
        """Consumer warps of a group."""
        return self.consumers // self.groups

    @property
    def teams(self) -> Any:
        """Rows that a group (with a ring) or a block works on at a time."""
        return self.group_warps // self.team

    def register_limit(self, sm_registers: int) -> Any:
        """Registers of a thread with which ``blocks_per_sm`` blocks fit in an SM's, by eights."""
        return smallest(REGISTERS_MAX, sm_registers // (self.threads * self.blocks_per_sm) // 8 * 8)


@dataclass(frozen=True, slots=True, order=True)
class NormConfig(Fields):
    """A kernel of the family and how it is launched. Field order is the last tie-break.

    kind            plain: a warp for each row, three passes over memory; strong: the row in
                    registers; ring: like warps that fill rings of their own; specialised:
                    producer warps, first in the block, fill the rings of the consumers
    consumers       warps that compute: all of the block but ``producers``
    producers       of specialised: warps that load (bulk: one thread of the first)
    groups          of ring and specialised: consumers in so many groups, each with its own
                    ring and its own chunks
    team            warps that share a row
    vector_bytes    what a lane of plain and strong loads at a time
    copies          how slots are filled: one thread's bulk copies, asynchronous copies of 16
                    bytes, or loads and stores by producer warps
    barrier         what producers and consumers meet at
    depth           slots of each group's ring
    chunk_bytes     of a slot at most: whole rows where one fits in, else a part of one
    hold            where a row waits between its statistics and its transformation: registers;
                    shared: in its slots; reload: its chunks come twice (plain reads memory again)
    stores          by vectors of lanes, or by bulk copies from the slots
    rounds          units of work that each team (plain, strong) or group takes before its block
                    ends; 0: persistent
    blocks_per_sm   blocks that must fit in an SM by their registers
    register_split  1: registers move from producers to consumers with setmaxnreg
    """

    kind: str
    consumers: int
    producers: int = 0
    groups: int = 1
    team: int = 1
    vector_bytes: int = VECTOR_BYTES
    copies: str = "bulk"
    barrier: str = "mbarrier"
    depth: int = 0
    chunk_bytes: int = 0
    hold: str = "registers"
    stores: str = "vector"
    rounds: int = 1
    blocks_per_sm: int = 1
    register_split: int = 0

    def is_one_of(self, field: str, *words: str) -> bool:
        """Whether a field is one of these words."""
        return getattr(self, field) in words

    def to_dict(self) -> dict[str, Any]:
        """The fields under their own names."""
        return asdict(self)

    def to_columns(self) -> dict[str, int]:
        """The fields as integers, words by their place in WORDS."""
        values = {name: getattr(self, name) for name in _CODE_BITS}
        return values | {name: words.index(values[name]) for name, words in WORDS.items()}

    @classmethod
    def from_columns(cls, values: Mapping[str, int]) -> NormConfig:
        """A configuration from ``to_columns``' integers."""
        words = {name: known[values[name]] for name, known in WORDS.items()}
        return cls(**{**values, **words})  # type: ignore[arg-type]

    @property
    def code(self) -> int:
        """The fields packed into an integer, in an order equal to field order."""
        return packed(self.to_columns(), _CODE_BITS)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NormConfig:
        """A configuration from its own field names.

        Raises IllegalConfig for an unknown or missing field or a value of the wrong type.
        """
        types = {f.name: str if f.type == "str" else int for f in fields(cls)}
        for name, value in values.items():
            if name not in types:
                raise IllegalConfig(
                    name, f"is no configuration field; there are {', '.join(types)}"
                )
            if type(value) is not types[name]:
                raise IllegalConfig(
                    name, f"must be {types[name].__name__}, got {type(value).__name__}"
                )
        for name in ("kind", "consumers"):
            if name not in values:
                raise IllegalConfig(name, "is required")
        return cls(**values)


FIELDS = tuple(field.name for field in fields(NormConfig))
_CODE_BITS = {
    "kind": 2,
    "consumers": 6,
    "producers": 5,
    "groups": 6,
    "team": 6,
    "vector_bytes": 5,
    "copies": 2,
    "barrier": 1,
    "depth": 5,
    "chunk_bytes": 17,
    "hold": 2,
    "stores": 1,
    "rounds": 17,
    "blocks_per_sm": 6,
    "register_split": 1,
}
