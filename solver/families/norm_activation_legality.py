"""Legality of the norm_activation family: what bounds a configuration, each rule with its words.

One predicate serves a single configuration and whole columns of them; ``norm_activation_space``
lists what is legal of its domain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

from solver.device import DeviceProfile
from solver.elementwise import implied, is_any, where
from solver.errors import IllegalConfig
from solver.families import norm_activation as family
from solver.families import norm_activation_block as block
from solver.families.norm_activation import Fields, NormConfig, NormProblem
from solver.families.norm_activation_fields import NormColumns
from solver.limits import check_choice, check_integer

NAMED_BARRIERS_MAX = 15
SLOTS_MAX = 64
_INTEGERS = {
    "consumers": (1, 32),
    "producers": (0, 16),
    "groups": (1, 32),
    "team": (1, 32),
    "depth": (0, 16),
    "chunk_bytes": (0, 65536),
    "rounds": (0, 65536),
    "blocks_per_sm": (1, 32),
    "register_split": (0, 1),
}
_WORDS = {
    "kind": family.KINDS,
    "copies": family.COPIES,
    "barrier": family.BARRIERS,
    "hold": family.HOLDS,
    "stores": family.STORES,
}


@dataclass(frozen=True, slots=True)
class Limit:
    """One rule: the field it is about, whether it holds (of one, or element by element), and its
    words.

    ``rule`` and ``got`` are format strings, of one configuration alone: over ``config`` and the
    names in ``values``. What was got is the field's own value where nothing else is said.
    """

    field: str
    holds: Any
    rule: str
    got: str = ""
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def words(self, config: NormConfig) -> str:
        """The rule, and what was got of a configuration that breaks it."""
        got = self.got or f"{{config.{self.field}}}"
        return f"{self.rule}, got {got}".format(config=config, **self.values)


def runs_on(device: DeviceProfile) -> bool:
    """Whether the family has kernels for a device: NVIDIA's, from sm_80 on."""
    return device.arch.startswith("sm_") and int(device.arch[3:].rstrip("a")) >= 80


def is_hopper(device: DeviceProfile) -> bool:
    """Whether a device has bulk copies and setmaxnreg as these kernels use them."""
    return device.arch.startswith("sm_90")


def why_illegal(problem: NormProblem, config: NormConfig, device: DeviceProfile) -> str | None:
    """The first rule that a configuration breaks, ``field: rule``; None where it is legal."""
    try:
        check_legal(problem, config, device)
    except IllegalConfig as error:
        return str(error)
    return None


def check_legal(problem: NormProblem, config: NormConfig, device: DeviceProfile) -> None:
    """Raises IllegalConfig, which names the field, the rule and what was got."""
    check_ranges(config)
    for limit in _limits(problem, config, device):
        if not limit.holds:
            raise IllegalConfig(limit.field, limit.words(config))


def check_ranges(config: NormConfig) -> None:
    """Raises IllegalConfig for a field beyond what any configuration may have, whatever the problem
    and the device are."""
    for field, (low, high) in _INTEGERS.items():
        check_integer(field, getattr(config, field), low, high, error=IllegalConfig)
    for field, choices in _WORDS.items():
        check_choice(field, getattr(config, field), choices, IllegalConfig)


def are_legal(problem: NormProblem, configs: NormColumns, device: DeviceProfile) -> Any:
    """Which configurations are legal, of some within the ranges of their fields. Shape [R]."""
    return reduce(and_, [limit.holds for limit in _limits(problem, configs, device)])


def _limits(problem: NormProblem, config: Fields, device: DeviceProfile) -> Iterator[Limit]:
    words = "the family's kernels are for NVIDIA GPUs from sm_80 on"
    yield Limit("kind", runs_on(device), words, device.arch)
    yield from _roles(config, device)
    yield from _no_ring(problem, config)
    yield from _ring(problem, config, device)
    yield from _chunks(problem, config)
    yield from _block(problem, config, device)


def _roles(config: Fields, device: DeviceProfile) -> Iterator[Limit]:
    has_producers = config.producers > 0
    yield Limit(
        "producers",
        config.is_one_of("kind", "specialised") == has_producers,
        "must be positive for specialised and 0 otherwise",
    )
    yield Limit(
        "groups",
        config.consumers % config.groups == 0,
        "must divide consumers = {config.consumers}",
    )
    yield Limit(
        "team",
        config.group_warps % config.team == 0,
        "must divide the warps of a group, {config.group_warps}",
    )
    plain = config.is_one_of("kind", "plain")
    yield Limit("team", implied(plain, config.team == 1), "must be 1 for plain")
    split = config.register_split > 0
    roles = [
        (config.producers == producers) & (config.consumers == consumers)
        for producers, consumers in family.SPLIT_REGISTERS
    ]
    allowed = ", ".join(map(str, family.SPLIT_REGISTERS))
    yield Limit(
        "register_split",
        implied(split, reduce(or_, roles)),
        f"must be 0 unless (producers, consumers) is one of {allowed}",
        "({config.producers}, {config.consumers})",
    )
    launched = config.threads * config.blocks_per_sm * family.SPLIT_LAUNCH_REGISTERS
    yield Limit(
        "blocks_per_sm",
        implied(split, launched == device.limit("registers_per_sm")),
        "must be what makes 128 registers a thread with register_split",
    )


def _no_ring(problem: NormProblem, config: Fields) -> Iterator[Limit]:
    """What plain and strong have no use for, and what a lane of theirs loads."""
    ring, plain = config.has_ring, config.is_one_of("kind", "plain")
    for field, value in (("groups", 1), ("depth", 0), ("chunk_bytes", 0)):
        holds = ring | (getattr(config, field) == value)
        yield Limit(field, holds, f"must be {value} for {{config.kind}}")
    for field, word in (("copies", "bulk"), ("barrier", "mbarrier"), ("stores", "vector")):
        holds = ring | config.is_one_of(field, word)
        yield Limit(field, holds, f"must be {word} (unused) for {{config.kind}}")
    reloads = implied(plain, config.is_one_of("hold", "reload"))
    yield Limit("hold", reloads, "must be reload for plain")
    keeps = ring | plain | config.is_one_of("hold", "registers")
    yield Limit("hold", keeps, "must be registers for strong")
    least = problem.element_bytes
    sizes = [n for n in (2, 4, 8, 16) if n >= least and problem.row_bytes % n == 0]
    yield Limit(
        "vector_bytes",
        ring | is_any(config.vector_bytes, sizes),
        f"must be one of {', '.join(map(str, sizes))} (they divide a row of "
        f"{problem.row_bytes} bytes)",
    )


def _ring(problem: NormProblem, config: Fields, device: DeviceProfile) -> Iterator[Limit]:
    ring, like = config.has_ring, config.is_one_of("kind", "ring")
    yield Limit(
        "vector_bytes",
        implied(ring, config.vector_bytes == family.VECTOR_BYTES),
        "must be 16 for {config.kind}",
    )
    yield Limit(
        "kind",
        implied(ring, problem.row_bytes % family.VECTOR_BYTES == 0),
        "rows must be a multiple of 16 bytes for a ring (plain and strong take any)",
        f"{problem.row_bytes} bytes",
    )
    yield Limit("depth", implied(ring, config.depth >= 2), "must be at least 2 for {config.kind}")
    vectors = (config.chunk_bytes > 0) & (config.chunk_bytes % family.VECTOR_BYTES == 0)
    yield Limit("chunk_bytes", implied(ring, vectors), "must be a positive multiple of 16")
    bulk, async_, loads = (config.is_one_of("copies", w) for w in ("bulk", "async", "vector"))
    bulk_stores, split = config.is_one_of("stores", "bulk"), config.register_split > 0
    if not is_hopper(device):
        for field, needs, words in (
            ("copies", bulk, "bulk copies need sm_90"),
            ("stores", bulk_stores, "bulk stores need sm_90"),
            ("register_split", split, "setmaxnreg needs sm_90"),
        ):
            yield Limit(field, implied(ring & needs, False), words, device.arch)
    yield Limit(
        "copies",
        implied(like, bulk | async_),
        "must be bulk or async for ring: it can't wait for its own loads",
    )
    one = (config.producers == 0) | (config.producers == where(split, 4, 1))
    yield Limit(
        "producers",
        implied(ring & bulk, one),
        "must be 1 with bulk copies, which one thread issues (4 with register_split)",
    )
    yield Limit(
        "barrier",
        implied(ring & config.is_one_of("barrier", "named"), loads),
        "must be mbarrier with {config.copies} copies, which report to one",
    )
    yield Limit(
        "stores",
        implied(ring & bulk_stores & config.is_one_of("hold", "registers"), False),
        "must be vector with hold registers: the slot is gone by then",
    )


def _chunks(problem: NormProblem, config: Fields) -> Iterator[Limit]:
    """How rows come to a ring: whole, or each in several chunks."""
    found = block.chunking(problem, config)
    ring, chunks = config.has_ring, found.chunks_per_unit
    cut, whole = ring & (chunks > 1), ring & (chunks == 1)
    registers, shared, reload = (
        config.is_one_of("hold", word) for word in ("registers", "shared", "reload")
    )
    yield Limit(
        "hold",
        implied(whole & reload, False),
        "must not be reload where a chunk holds whole rows",
    )
    yield Limit(
        "chunk_bytes",
        implied(whole, found.rows_per_unit >= config.teams),
        "must hold a row for each of a group's {config.teams} teams",
    )
    yield Limit(
        "team",
        implied(cut, config.teams == 1),
        "must be all warps of a group where a row comes in chunks",
    )
    specialised = config.is_one_of("kind", "specialised")
    yield Limit(
        "groups",
        implied(cut & specialised & shared, config.groups == 1),
        "must be 1 with hold shared where a row comes in chunks",
    )
    step = family.VECTOR_BYTES * family.WARP * config.team
    yield Limit(
        "chunk_bytes",
        implied(cut & registers, config.chunk_bytes % step == 0),
        "must be a multiple of {step}, what a team reads at a time, with hold registers",
        values={"step": step},
    )
    vectors = block.vectors_of(problem, config)
    elements = family.VECTOR_BYTES // problem.element_bytes
    yield Limit(
        "chunk_bytes",
        implied(cut & registers, block.whole_vectors(vectors, elements) == vectors),
        f"must make a lane's share of a row one of {block.VECTOR_STEPS} vectors",
        "{vectors} vectors",
        {"vectors": vectors},
    )
    yield Limit(
        "hold",
        implied(cut & reload, chunks > config.depth),
        "must not be reload unless a row has more chunks than a ring slots, {config.depth}",
        "{chunks} chunks",
        {"chunks": chunks},
    )
    yield Limit(
        "depth",
        implied(cut & shared, chunks <= config.depth),
        "must be at least the {chunks} chunks of a row with hold shared",
        values={"chunks": chunks},
    )


def _block(problem: NormProblem, config: Fields, device: DeviceProfile) -> Iterator[Limit]:
    """What a block may take, and an SM must hold."""
    most = device.limit("threads_per_block")
    words = f"a block must have at most {most} threads"
    yield Limit("consumers", config.threads <= most, words, "{config.threads}")
    named = block.named_barriers(config)
    words = f"teams of several warps and named slots must need at most {NAMED_BARRIERS_MAX} ids"
    yield Limit("team", named <= NAMED_BARRIERS_MAX, words, "{named}", {"named": named})
    slots = config.groups * config.depth
    words = f"a block must have at most {SLOTS_MAX} slots"
    yield Limit("depth", slots <= SLOTS_MAX, words, "{slots}", {"slots": slots})
    smem, room = block.smem_bytes(problem, config), device.limit("smem_per_block_bytes")
    words = f"a block's shared memory must be at most {room} bytes"
    yield Limit("chunk_bytes", smem <= room, words, "{smem}", {"smem": smem})
    share = block.words_of(problem, config)
    held = where(config.has_ring, family.RING_WORDS_MAX, family.WORDS_MAX)
    yield Limit(
        "hold",
        share <= held,
        "a lane's share of a row must fit in {held} registers",
        "{share} words",
        {"held": held, "share": share},
    )
    have = config.register_limit(device.limit("registers_per_sm"))
    need = block.least_registers(config, share)
    yield Limit(
        "blocks_per_sm",
        need <= have,
        "leaves {have} registers a thread, {share} words of a row need at least {need}",
        values={"have": have, "share": share, "need": need},
    )
    yield Limit(
        "blocks_per_sm",
        config.threads * config.blocks_per_sm <= device.limit("threads_per_sm"),
        "an SM must hold the threads of so many blocks",
    )
