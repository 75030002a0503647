"""Legality of the norm_activation family: one predicate; ``norm_activation_space`` lists it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from solver.device import DeviceProfile
from solver.errors import IllegalConfig
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
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

Broken = tuple[str, str, Any]  # field, rule, what was got


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
    for field, (low, high) in _INTEGERS.items():
        check_integer(field, getattr(config, field), low, high, error=IllegalConfig)
    for field, choices in _WORDS.items():
        check_choice(field, getattr(config, field), choices, IllegalConfig)
    for field, rule, got in _broken(problem, config, device):
        raise IllegalConfig(field, f"{rule}, got {got}")


def _broken(problem: NormProblem, config: NormConfig, device: DeviceProfile) -> Iterator[Broken]:
    if not runs_on(device):
        yield "kind", "the family's kernels are for NVIDIA GPUs from sm_80 on", device.arch
    yield from _roles(config, device)
    if config.has_ring:
        yield from _ring(problem, config, device)
    else:
        yield from _no_ring(problem, config)
    yield from _limits(problem, config, device)


def _roles(config: NormConfig, device: DeviceProfile) -> Iterator[Broken]:
    specialised = config.kind == "specialised"
    if specialised != (config.producers > 0):
        yield "producers", "must be positive for specialised and 0 otherwise", config.producers
    if config.consumers % config.groups:
        yield "groups", f"must divide consumers = {config.consumers}", config.groups
    if config.group_warps % config.team:
        yield "team", f"must divide the warps of a group, {config.group_warps}", config.team
    if config.kind == "plain" and config.team != 1:
        yield "team", "must be 1 for plain", config.team
    if config.register_split:
        roles = (config.producers, config.consumers)
        if roles not in family.SPLIT_REGISTERS:
            allowed = ", ".join(map(str, family.SPLIT_REGISTERS))
            yield (
                "register_split",
                f"must be 0 unless (producers, consumers) is one of {allowed}",
                roles,
            )
        launched = config.threads * config.blocks_per_sm * family.SPLIT_LAUNCH_REGISTERS
        if launched != device.limit("registers_per_sm"):
            yield (
                "blocks_per_sm",
                "must be what makes 128 registers a thread with register_split",
                config.blocks_per_sm,
            )


def _no_ring(problem: NormProblem, config: NormConfig) -> Iterator[Broken]:
    for field, value in (("groups", 1), ("depth", 0), ("chunk_bytes", 0)):
        if getattr(config, field) != value:
            yield field, f"must be {value} for {config.kind}", getattr(config, field)
    for field, word in (("copies", "bulk"), ("barrier", "mbarrier"), ("stores", "vector")):
        if getattr(config, field) != word:
            yield field, f"must be {word} (unused) for {config.kind}", getattr(config, field)
    hold = "reload" if config.kind == "plain" else "registers"
    if config.hold != hold:
        yield "hold", f"must be {hold} for {config.kind}", config.hold
    size = problem.element_bytes
    sizes = [n for n in (2, 4, 8, 16) if n >= size and problem.row_bytes % n == 0]
    if config.vector_bytes not in sizes:
        yield (
            "vector_bytes",
            f"must be one of {', '.join(map(str, sizes))} (they divide a row of "
            f"{problem.row_bytes} bytes)",
            config.vector_bytes,
        )


def _ring(problem: NormProblem, config: NormConfig, device: DeviceProfile) -> Iterator[Broken]:
    if config.vector_bytes != family.VECTOR_BYTES:
        yield "vector_bytes", f"must be 16 for {config.kind}", config.vector_bytes
    if problem.row_bytes % family.VECTOR_BYTES:
        yield (
            "kind",
            "rows must be a multiple of 16 bytes for a ring (plain and strong take any)",
            f"{problem.row_bytes} bytes",
        )
    if config.depth < 2:
        yield "depth", f"must be at least 2 for {config.kind}", config.depth
    if config.chunk_bytes < family.VECTOR_BYTES or config.chunk_bytes % family.VECTOR_BYTES:
        yield "chunk_bytes", "must be a positive multiple of 16", config.chunk_bytes
        return
    if not is_hopper(device):
        if config.copies == "bulk":
            yield "copies", "bulk copies need sm_90", device.arch
        if config.stores == "bulk":
            yield "stores", "bulk stores need sm_90", device.arch
        if config.register_split:
            yield "register_split", "setmaxnreg needs sm_90", device.arch
    if config.kind == "ring" and config.copies == "vector":
        yield "copies", "must be bulk or async for ring: it can't wait for its own loads", "vector"
    if config.copies == "bulk" and config.producers not in (0, 4 if config.register_split else 1):
        yield (
            "producers",
            "must be 1 with bulk copies, which one thread issues (4 with register_split)",
            config.producers,
        )
    if config.barrier == "named" and config.copies != "vector":
        yield (
            "barrier",
            f"must be mbarrier with {config.copies} copies, which report to one",
            "named",
        )
    if config.stores == "bulk" and config.hold == "registers":
        yield "stores", "must be vector with hold registers: the slot is gone by then", "bulk"
    yield from _chunks(problem, config)


def _chunks(problem: NormProblem, config: NormConfig) -> Iterator[Broken]:
    found = family.chunking(problem, config)
    if found.chunks_per_unit == 1:
        if config.hold == "reload":
            yield "hold", "must not be reload where a chunk holds whole rows", "reload"
        if found.rows_per_unit < config.teams:
            yield (
                "chunk_bytes",
                f"must hold a row for each of a group's {config.teams} teams",
                config.chunk_bytes,
            )
        return
    if config.teams != 1:
        yield "team", "must be all warps of a group where a row comes in chunks", config.team
    if config.kind == "specialised" and config.groups > 1 and config.hold == "shared":
        yield "groups", "must be 1 with hold shared where a row comes in chunks", config.groups
    if config.hold == "registers":
        step = family.VECTOR_BYTES * family.WARP * config.team
        vectors = family.vectors_of(problem, config)
        elements = family.VECTOR_BYTES // problem.element_bytes
        if config.chunk_bytes % step:
            yield (
                "chunk_bytes",
                f"must be a multiple of {step}, what a team reads at a time, with hold registers",
                config.chunk_bytes,
            )
        if family.whole_vectors(vectors, elements) != vectors:
            yield (
                "chunk_bytes",
                f"must make a lane's share of a row one of {family.VECTOR_STEPS} vectors",
                f"{vectors} vectors",
            )
    if config.hold == "reload" and found.chunks_per_unit <= config.depth:
        yield (
            "hold",
            f"must not be reload unless a row has more chunks than a ring slots, {config.depth}",
            f"{found.chunks_per_unit} chunks",
        )
    if config.hold == "shared" and found.chunks_per_unit > config.depth:
        yield (
            "depth",
            f"must be at least the {found.chunks_per_unit} chunks of a row with hold shared",
            config.depth,
        )


def _limits(problem: NormProblem, config: NormConfig, device: DeviceProfile) -> Iterator[Broken]:
    most = device.limit("threads_per_block")
    if config.threads > most:
        yield "consumers", f"a block must have at most {most} threads", config.threads
    if family.named_barriers(config) > NAMED_BARRIERS_MAX:
        yield (
            "team",
            f"teams of several warps and named slots must need at most {NAMED_BARRIERS_MAX} ids",
            family.named_barriers(config),
        )
    if config.groups * config.depth > SLOTS_MAX:
        yield "depth", f"a block must have at most {SLOTS_MAX} slots", config.groups * config.depth
    smem = family.smem_bytes(problem, config)
    room = device.limit("smem_per_block_bytes")
    if smem > room:
        yield "chunk_bytes", f"a block's shared memory must be at most {room} bytes", smem
    words = family.words_of(problem, config)
    most = family.RING_WORDS_MAX if config.has_ring else family.WORDS_MAX
    if words > most:
        yield (
            "hold",
            f"a lane's share of a row must fit in {most} registers",
            f"{words} words",
        )
    have = config.register_limit(device.limit("registers_per_sm"))
    need = registers_for(config, words)
    if need > have:
        yield (
            "blocks_per_sm",
            f"leaves {have} registers a thread, {words} words of a row need at least {need}",
            config.blocks_per_sm,
        )
    if config.threads * config.blocks_per_sm > device.limit("threads_per_sm"):
        yield "blocks_per_sm", "an SM must hold the threads of so many blocks", config.blocks_per_sm


def registers_for(config: NormConfig, words: int) -> int:
    """Registers a thread with which NVRTC 13.5 spills nothing where ``words`` hold a lane's share
    of a row (tests/kernels/test_norm.py compiles a sample). A register split doesn't help: ptxas
    works with the launch's."""
    if config.kind == "plain":
        return 80
    if config.has_ring:
        return 40 + 2 * words
    least = 64 if config.team == 1 else 72
    narrow = 0 if config.vector_bytes == family.VECTOR_BYTES else 32
    return max(least, 40 + 3 * words // 2) + narrow
