"""Products of gigabytes, and those with one extent near 2^31, whose outputs are known without a
reference product.

Runs in a GPU process: CUDA is imported inside the functions.
"""

from __future__ import annotations

import random
from typing import Any

from bench.branches import Pair
from bench.gpu_work import check_pair
from kernels.launch_plan import plan_launch
from kernels.placed import Placed, place_operands
from solver.device import load_profile

_STEP = 1 << 26  # elements looked at together
_FIRST_BITS, _BITS_MASK = 0x2000, 0x3FFF  # positive numbers, finite and normal in bf16 and fp16
_ONE = {"bf16": 0x3F80, "fp16": 0x3C00}
_ONES = 80  # places where both operands are 1, and where only one of them is


def check_huge(name: str, extreme: bool, pair: Pair, seed: int, device: str) -> dict[str, Any]:
    """Check a pair as ``check_pair`` or ``check_extreme`` does; ``name`` is for the record.

    Memory is given back before and after.
    """
    from kernels.session import session

    session().release()
    try:
        return (check_extreme if extreme else check_pair)(pair, seed, device)
    finally:
        session().release()


def check_extreme(pair: Pair, seed: int, device: str) -> dict[str, Any]:
    """Launch a product of one extreme extent, the others 1 or a few, and look at every output.

    Along m or n, one operand is 1 and C repeats the other, bit for bit. Along k, both are 1 in
    a few places, some of which they share, each end and each share's ends among them.
    """
    import cupy as cp

    from kernels.bits import to_host
    from kernels.compile import check_compiled
    from kernels.launch import GemmLaunch, Workspace
    from kernels.session import session

    current, problem = session(), pair.problem
    kernel = current.kernel(pair.key)
    check_compiled(kernel.compiled, pair.config, load_profile(device))
    plan = plan_launch(problem, pair.config, pair.sms)
    operands, workspace = place_operands(cp, problem), Workspace(plan)
    along_k = problem.k > max(problem.m, problem.n)
    if along_k:
        shared = _ones_along_k(pair, seed, operands.a.view, operands.b.view)
    else:
        sides = (operands.a, operands.b)
        long, one = (_flat(side) for side in (sides if problem.m > 1 else sides[::-1]))
        _fill(long)
        one.fill(_ONE[problem.dtype])
    addresses = (operands.a.address, operands.b.address, operands.c.address)
    GemmLaunch(plan, kernel, *addresses, workspace).launch(current.stream)
    current.stream.synchronize()
    if along_k:
        got = float(to_host(cp, _flat(operands.c)).view("float32")[0])
        wrong = f"{got:g} ones met, expected {shared}" if got != shared else ""
    else:
        bad = _different(_flat(operands.c), long)
        wrong = f"{bad} elements wrong" if bad else ""
    changed = operands.c.surroundings_changed()
    details = [wrong, f"{changed} guard words around C overwritten" if changed else ""]
    return {"details": "; ".join(filter(None, details))}


def _flat(placed: Placed) -> Any:
    """The elements of a matrix of one line, or packed, as a view of one dimension."""
    return placed.buffer[placed.first : placed.first + placed.matrix.elements]


def _fill(flat: Any) -> None:
    """A pattern that seldom repeats."""
    import cupy as cp

    for first in range(0, flat.size, _STEP):
        place = cp.arange(first, min(flat.size, first + _STEP), dtype=cp.int64)
        bits = (place * 2_654_435_761 >> 13) & _BITS_MASK
        flat[first : first + _STEP] = (bits + _FIRST_BITS).astype(cp.uint16)


def _different(left: Any, right: Any) -> int:
    """How many elements of two arrays differ, a part at a time."""
    import cupy as cp

    return sum(
        int(cp.count_nonzero(left[first : first + _STEP] != right[first : first + _STEP]))
        for first in range(0, left.size, _STEP)
    )


def _ones_along_k(pair: Pair, seed: int, a: Any, b: Any) -> int:
    """Zeros but for a few ones; how many places have one in both."""
    import cupy as cp

    k, rng, one = pair.problem.k, random.Random(seed), _ONE[pair.problem.dtype]
    parts, tile_k = pair.config.split_k, pair.config.tile_k
    iterations = -(-k // tile_k)
    ends = {part * iterations // parts * tile_k for part in range(1, parts)}
    corners = {0, k - 1, *ends, *(end - 1 for end in ends)}
    drawn = rng.sample(range(1, k - 1), 3 * _ONES)
    both = corners.union(drawn[:_ONES])
    alone = (set(drawn[_ONES : 2 * _ONES]) - both, set(drawn[2 * _ONES :]) - both)
    for operand, own in zip((a, b), alone, strict=True):
        operand.fill(0)
        operand[:, cp.asarray(sorted(both | own))] = one
    return len(both)
