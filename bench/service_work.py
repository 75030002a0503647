"""What is asked of a service beside a GPU, and how each of it must end.

Nothing that a caller sends reaches the compiler, so that no request can bring a kernel that hangs
or gives a wrong result: these are planted where the service looks for kernels that it compiled
before, its cache. The service itself is what ships.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from app.plan import candidates
from bench.branch_pairs import chosen_keys, pair
from bench.branches import Pair
from bench.hang_plants import PLANTS
from bench.patch import Patch
from kernels.cache import KernelCache, payload_of
from kernels.compile import build_kernel, identity_of
from kernels.sources import Variant, headers
from kernels.verify import Reason
from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import IllegalConfig
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.families.sm90_gemm import CompileKey
from solver.problem import Problem
from solver.question import Question
from solver.suites import load_suite

KEYS = 24
"""Kernels that verifications of given configurations share: each is compiled once."""
PICK_EVERY = 8
"""One verification in so many is of the solver's pick for one of PICKED problems."""
PICKED = 6
PRIORITIES = ("low", "normal", "normal", "high")


@dataclass(frozen=True, slots=True)
class Asked:
    """A verification's body, and how it must end; ``hang`` has the fields that the report on it
    must have."""

    body: Mapping[str, Any]
    status: str = "passed"
    reason: str | None = None
    hang: Mapping[str, Any] | None = None


_HANGS = PLANTS["a missing release"]
_WRONG = Patch(
    "sm90_gemm_epilogue.cuh",
    "packed[i] = Element::pack(low, high);",
    "packed[i] = Element::pack(low, high + (threadIdx.x % kWarpgroupThreads == 64 ? 1.0f : 0.0f));",
)
_WRONG_CONFIG = Config(family.NAME, 64, 64, 64, 4)
_WRONG_PROBLEMS = tuple(
    Problem(m, n, k, "fp16", "nn") for m, n, k in ((192, 192, 256), (64, 320, 512), (640, 128, 64))
)
"""Their C leaves through the staging buffer, where one element in some is one too large."""


def _key(problem: Problem, config: Config) -> CompileKey:
    return family.compile_key(config, problem.dtype, problem.kernel_layout)


HANGING_KEY = _key(_HANGS.problem, _HANGS.config)
WRONG_KEY = _key(_WRONG_PROBLEMS[0], _WRONG_CONFIG)


def plant(cache: KernelCache) -> None:
    """Compile the planted kernels and keep them as those that ship: the one that hangs in its debug
    build too, by which the service finds out where.

    Raises CompileFailed, CompilerAbsent, CacheUnwritable, and LookupError where a source has moved
    on.
    """
    hanging = _HANGS.patched()
    for key, patched, variant in (
        (HANGING_KEY, hanging, Variant.SHIPPED),
        (HANGING_KEY, hanging, Variant.DEBUG),
        (WRONG_KEY, _WRONG.applied(headers()), Variant.SHIPPED),
    ):
        kernel = build_kernel(key, variant=variant, patched=patched)
        cache.store(identity_of(key, variant=variant), payload_of(kernel))


def work(jobs: int, seed: int, device: DeviceProfile) -> list[Asked]:
    """``jobs`` seeded verifications in the order they are asked, and one that hangs among them."""
    rng = random.Random(seed)
    wrong = [_asked(p, _WRONG_CONFIG, "failed", Reason.WRONG_RESULT) for p in _WRONG_PROBLEMS]
    picks, given = _picks(rng, device), _given(rng, seed, device)
    right = [
        next(picks) if number % PICK_EVERY == PICK_EVERY - 1 else next(given)
        for number in range(jobs - len(wrong))
    ]
    asked = [*wrong, *right]
    rng.shuffle(asked)
    hang = _asked(_HANGS.problem, _HANGS.config, "failed", Reason.TIMEOUT, _HANGS.expected())
    asked.insert(rng.randint(jobs // 4, jobs // 2), hang)
    return asked


def _asked(
    problem: Problem,
    config: Config | None,
    status: str = "passed",
    reason: Reason | None = None,
    hang: Mapping[str, Any] | None = None,
    priority: str = "normal",
) -> Asked:
    body = problem.to_dict() | {"priority": priority}
    if config is not None:
        body["config"] = config.to_dict()
    return Asked(body, status, None if reason is None else str(reason), hang)


def _given(rng: random.Random, seed: int, device: DeviceProfile) -> Iterator[Asked]:
    """Small problems of every layout, type and alignment, each with a legal configuration."""
    every = chosen_keys(device)
    sound = [key for key in every if key not in (HANGING_KEY, WRONG_KEY)]
    keys = set(rng.sample(sound, KEYS))
    for number in count():
        drawn = pair(number, seed, every, device)
        if drawn.key in keys and _is_legal(drawn, device):
            yield _asked(drawn.problem, drawn.config, priority=rng.choice(PRIORITIES))


def _is_legal(drawn: Pair, device: DeviceProfile) -> bool:
    """Whether it may use every SM: a verification does."""
    try:
        legality.check(drawn.config, drawn.problem, device)
    except IllegalConfig:
        return False
    return True


def _picks(rng: random.Random, device: DeviceProfile) -> Iterator[Asked]:
    """Small cubes in turn, each of which the solver picks for."""
    problems = _problems_of_sound_picks(rng, device)
    while True:
        yield from (_asked(p, None, priority=rng.choice(PRIORITIES)) for p in problems)


def _problems_of_sound_picks(rng: random.Random, device: DeviceProfile) -> Sequence[Problem]:
    cubes = list(load_suite("paper"))
    rng.shuffle(cubes)
    found: list[Problem] = []
    for problem in cubes:
        [(config, _)] = candidates(Question(problem, device=device.name, proof="none"), 1)
        if _key(problem, Config.from_dict(config)) not in (HANGING_KEY, WRONG_KEY):
            found.append(problem)
        if len(found) == PICKED:
            break
    return found
