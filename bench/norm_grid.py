"""The fixed grid of norm_activation problems and the candidates of each, written before measuring.

    python -m bench.norm_grid --out plan.json
    python -m kernels.norm.bench plan.json --out bench/results/h200/norm_grid.json

A polynomial's degree is the arithmetic knob: 0 is bound by memory, 512 by arithmetic. Each problem
comes with as many warps on an SM as fit, and with 4, 8 and 16 forced by shared memory that the
blocks take besides their own. A quarter of the 96 is held out of every fit, by hash.

``--further`` plans what the grid leaves out, for the constants that no polynomial tells: the other
transformations, RMS norm, fp16, narrow and long rows, and arrays of a few microseconds, each at
natural occupancy.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import log2
from pathlib import Path

from bench.files import write
from kernels.norm.cells import Cell
from solver.device import DeviceProfile, load_profile
from solver.families import norm_activation as family
from solver.families import norm_activation_block as block
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_crowding import reserved_smem_bytes
from solver.families.norm_activation_legality import why_illegal
from solver.families.norm_activation_space import legal_configs
from solver.split import is_norm_held_out

DEGREES = (0, 8, 32, 64, 128, 512)
WIDTHS = (1024, 4096)
DTYPES = ("fp32", "bf16")
WARPS_PER_SM = (None, 4, 8, 16)
ARRAY_BYTES = 1 << 28
FURTHER_BYTES = 1 << 26
FURTHER_WIDTHS = (256, 768, 8192, 16384, 65536)
FURTHER_SIZES = (1 << 19, 1 << 21, 1 << 23)
SMEM_BYTES = 48 * 1024
DEVICE = "h200"

Form = dict[str, int | str]


def problems() -> Iterator[NormProblem]:
    """The grid's problems, each of ARRAY_BYTES in and out; those of one array in a row."""
    for dtype, width in product(DTYPES, WIDTHS):
        rows = ARRAY_BYTES // (width * family.ELEMENT_BYTES[dtype])
        for degree in DEGREES:
            yield NormProblem(rows, width, dtype, "layer", "poly", degree)


def further_problems() -> Iterator[NormProblem]:
    """Problems beside the grid's, with a quarter of its bytes where nothing else is said."""

    def of(
        dtype: str, width: int, *what: str | int, array_bytes: int = FURTHER_BYTES
    ) -> NormProblem:
        rows = array_bytes // (width * family.ELEMENT_BYTES[dtype])
        return NormProblem(rows, width, dtype, *what)  # type: ignore[arg-type]

    for dtype, width in product(DTYPES, WIDTHS):
        for activation in ("gelu", "gelu_tanh", "silu"):
            yield of(dtype, width, "layer", activation)
        yield of(dtype, width, "rms", "silu")
        yield of(dtype, width, "rms", "poly", 32)
    for width in FURTHER_WIDTHS:
        yield of("bf16", width, "layer", "gelu")
        yield of("fp16", width, "layer", "poly", 32)
    for size in FURTHER_SIZES:
        yield of("bf16", 4096, "layer", "gelu_tanh", array_bytes=size)
        yield of("fp32", 1024, "rms", "poly", 8, array_bytes=size)


def forms() -> Iterator[Form]:
    """What candidates there are besides plain and strong ones, as fields that a legal configuration
    must have; ``candidates`` takes the first choice of the others."""

    def ring(consumers: int, copies: str, depth: int, **more: int | str) -> Form:
        return {
            "kind": "ring",
            "consumers": consumers,
            "copies": copies,
            "depth": depth,
            **more,
        }

    for consumers, depth in product((4, 8, 16), (2, 4)):
        yield ring(consumers, "bulk", depth)
    for consumers in (4, 8):
        yield ring(consumers, "bulk", 4, groups=consumers)
        yield ring(consumers, "async", 4)
    yield ring(4, "bulk", 6)
    yield ring(8, "bulk", 3, stores="bulk")

    def roles(producers: int, consumers: int, copies: str, depth: int, **more: int | str) -> Form:
        return {
            "kind": "specialised",
            "producers": producers,
            "consumers": consumers,
            "copies": copies,
            "depth": depth,
            **more,
        }

    for producers, consumers in ((2, 14), (4, 12), (8, 8), (2, 6), (4, 4), (1, 3), (2, 2)):
        yield roles(producers, consumers, "vector", 2, barrier="named")
    yield roles(8, 8, "vector", 2, barrier="named", chunk_bytes=32768)
    yield roles(4, 12, "vector", 2, barrier="mbarrier")
    yield roles(4, 12, "async", 4)
    yield roles(2, 6, "async", 4)
    for consumers in (3, 7, 12, 15):
        yield roles(1, consumers, "bulk", 2)
    for consumers, depth in product((4, 8), (2, 4, 6)):
        yield roles(1, consumers, "bulk", depth, chunk_bytes=16384)
    for depth, chunk in ((6, 4096), (4, 8192), (2, 32768)):
        yield roles(1, 8, "bulk", depth, chunk_bytes=chunk)
    for consumers in (4, 8, 15):
        yield roles(1, consumers, "bulk", 2, groups=consumers)
    yield roles(1, 8, "bulk", 2, rounds=8)
    yield roles(1, 8, "bulk", 3, stores="bulk")
    yield roles(4, 12, "bulk", 2, register_split=1)


def candidates(problem: NormProblem, device: DeviceProfile) -> list[NormConfig]:
    """The configurations raced over a problem; of those that a form leaves open, the first by
    ``_preference``."""
    size = problem.element_bytes
    found = [NormConfig("plain", w, vector_bytes=size, hold="reload") for w in (4, 8)]
    found.append(NormConfig("plain", 8, hold="reload"))
    strong = _strong(problem, device, (16, 32, 64)) or _strong(problem, device, range(1, 65))
    found += [*strong, *(replace(config, rounds=0) for config in strong[:1])]
    space = [config for config in legal_configs(problem, device) if config.has_ring]
    for form in forms():
        wanted = {"rounds": 0, "register_split": 0, "stores": "vector"} | form
        fitting = [
            config
            for config in space
            if all(getattr(config, name) == value for name, value in wanted.items())
        ]
        if fitting:
            found.append(min(fitting, key=lambda config: _preference(problem, config)))
    return list(dict.fromkeys(found))


def _strong(problem: NormProblem, device: DeviceProfile, words: Container[int]) -> list[NormConfig]:
    """Strong ones whose lanes hold so many registers of a row, with the most blocks on an SM."""
    found = []
    for warps, team, blocks in product((4, 8, 16), (1, 2, 4, 8, 16), (1, 2, 3, 4, 5, 6, 8)):
        if warps == 16 and team < 16:
            continue
        config = NormConfig("strong", warps, team=team, blocks_per_sm=blocks)
        if team <= warps and block.words_of(problem, config) in words:
            tighter = replace(config, blocks_per_sm=blocks + 1)
            tightest = why_illegal(problem, tighter, device) is not None
            if why_illegal(problem, config, device) is None and (blocks == 1 or tightest):
                found.append(config)
    return found


def _preference(problem: NormProblem, config: NormConfig) -> tuple[float | NormConfig, ...]:
    """Registers first, some 16 to 32 of them for a row, then whole rows, then some 48 KiB of shared
    memory, of which four blocks fit in an SM."""
    return (
        config.hold != "registers",
        abs(block.words_of(problem, config) - 24),
        block.chunking(problem, config).chunks_per_unit > 1,
        abs(log2(block.smem_bytes(problem, config) / SMEM_BYTES)),
        config,
    )


def cells(device: DeviceProfile) -> Iterator[Cell]:
    """The plan: each problem's candidates, at natural occupancy and at each that is forced."""
    known: dict[NormProblem, list[NormConfig]] = {}
    for problem in problems():
        inputs = replace(problem, degree=0)  # what is legal doesn't depend on it
        if inputs not in known:
            known[inputs] = candidates(inputs, device)
        for warps in WARPS_PER_SM:
            yield from _race(problem, known[inputs], warps, device)


def further_cells(device: DeviceProfile) -> Iterator[Cell]:
    """The plan of ``further_problems``, all at natural occupancy."""
    for problem in further_problems():
        yield from _race(problem, candidates(problem, device), None, device)


def _race(
    problem: NormProblem, configs: Sequence[NormConfig], warps: int | None, device: DeviceProfile
) -> Iterator[Cell]:
    what = f"d{problem.degree}" if problem.activation == "poly" else problem.activation
    name = f"{problem.dtype}-{problem.width}-{what}-w{warps or 'all'}"
    if problem.norm != "layer" or problem.rows * problem.row_bytes != ARRAY_BYTES:
        name = f"{problem.norm}-{problem.rows}x{name}"
    held_out = is_norm_held_out(problem, warps)
    for config in configs:
        reserved = reserved_smem_bytes(problem, config, warps, device)
        if reserved is not None:
            yield Cell(name, problem, config, reserved, warps, held_out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the plan; 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.norm_grid", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="plan file (JSON)")
    parser.add_argument("--device", default=DEVICE, help="profile whose limits hold")
    parser.add_argument("--further", action="store_true", help="what the grid leaves out")
    chosen = parser.parse_args(arguments)
    planned = list((further_cells if chosen.further else cells)(load_profile(chosen.device)))
    write(chosen.out, {"suite": "norm_grid", "cells": [cell.to_dict() for cell in planned]})
    counts = Counter(cell.config.kind for cell in planned).most_common()
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts)
    races = {cell.race: cell.held_out for cell in planned}
    print(
        f"{len(planned)} cells of {len(races)} problems, {sum(races.values())} held out: {kinds}",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
