"""The register table: what the compiler makes of every compile key of the family.

``python -m kernels.table`` measures all of them and writes the table that the solver reads;
``bench_compile`` compiles the legal ones again and holds them against it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from kernels import nvrtc
from kernels.compile import build_kernel, unsound_reason
from kernels.errors import CompileFailed, CompilerMismatch
from kernels.sources import ARCH, source_hash
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.families import sm90_gemm_registers
from solver.families.sm90_gemm import CompileKey
from solver.problem import ELEMENT_BYTES, LAYOUTS

MEASURED_DTYPE = "bf16"  # fp16 kernels have the same registers: bench_compile compares both
TABLE_PATH = Path(sm90_gemm_registers.__file__).with_suffix(".json")
# 32-bit registers of an SM: CUDA C++ Programming Guide, technical specifications per compute
# capability, 9.0. A property of the architecture that the table is for, not of one device.
REGISTERS_PER_SM = {"sm_90a": 65_536}


@dataclass(frozen=True, slots=True)
class Measured:
    """One key as the compiler sees it; ``refused`` is why it isn't legal, or empty."""

    key: CompileKey
    registers: int
    smem_bytes_by_stages: tuple[int, ...]
    spilled: bool
    refused: str


def measure(key: CompileKey, arch: str = ARCH) -> Measured:
    """Compile a key afresh and judge it. Raises CompilerAbsent."""
    try:
        kernel = build_kernel(key, arch)
    except CompileFailed as error:
        return Measured(key, 0, (), False, error.reason)
    refused = unsound_reason(kernel)
    allocated = family.allocated_registers(key.max_threads, kernel.registers)
    if not refused and allocated > REGISTERS_PER_SM[arch]:
        refused = (
            f"{allocated // kernel.registers} threads of {kernel.registers} registers exceed an SM"
        )
    return Measured(
        key,
        kernel.registers,
        kernel.smem_bytes_by_stages,
        bool(kernel.spill_bytes),
        refused,
    )


def measure_all(keys: Sequence[CompileKey], processes: int | None = None) -> Iterator[Measured]:
    """Measure keys in processes of their own, in the order they finish; progress on stderr."""
    console = Console(stderr=True)
    workers = min(processes or len(os.sched_getaffinity(0)), max(1, len(keys)))
    # spawn: a forked child would share whatever threads and locks the parent has.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = [pool.submit(measure, key) for key in keys]
        yield from (
            future.result()
            for future in track(
                as_completed(futures),
                "Compiling",
                total=len(futures),
                console=console,
                disable=not console.is_terminal,
            )
        )


def make_table(measured: Iterable[Measured]) -> str:
    """The register table as JSON text, from every candidate key of one operand type, each
    legal or refused with its reason."""
    by_form = {m.key.form: m for m in measured}
    ordered = [by_form[key.form] for key in candidate_keys(MEASURED_DTYPE)]
    table = {
        "family": family.NAME,
        "arch": ARCH,
        "nvrtc": nvrtc.version(),
        "source_hash": source_hash(),
        "layouts": list(LAYOUTS),
        "registers": {m.key.form: m.registers for m in ordered if not m.refused},
        "refused": {m.key.form: m.refused for m in ordered if m.refused},
    }
    return json.dumps(table, indent=1) + "\n"


def candidate_keys(dtype: str) -> list[CompileKey]:
    """Every candidate key of one operand type, in the order of the table."""
    return [key for layout in LAYOUTS for key in legality.candidate_keys(dtype, layout)]


def write_table(path: Path = TABLE_PATH, processes: int | None = None) -> None:
    """Measure everything and replace the table in one step."""
    text = make_table(measure_all(candidate_keys(MEASURED_DTYPE), processes))
    temporary = path.with_suffix(".part")
    temporary.write_text(text, "utf-8")
    os.replace(temporary, path)


def table_keys() -> list[CompileKey]:
    """The legal compile keys of the table that ships, of every operand type, in domain order."""
    table = sm90_gemm_registers.register_table()
    return [key for dtype in ELEMENT_BYTES for key in candidate_keys(dtype) if table.of(key)]


def _smem_agrees(measured: Measured) -> bool:
    key = measured.key
    columns = {
        "tile_m": key.tile_m,
        "tile_n": key.tile_n,
        "tile_k": key.tile_k,
        "math_warpgroups": key.math_warpgroups,
    }
    return all(
        measured.smem_bytes_by_stages[stages]
        == int(family.smem_bytes({**columns, "stages": stages}, ELEMENT_BYTES[key.dtype]))
        for stages in family.STAGES
    )


def bench_compile(
    sample: int | None = None, seed: int = 0, processes: int | None = None
) -> dict[str, Any]:
    """Compile the table's legal keys, or a seeded sample, and count what disagrees.

    ``configs`` keys compiled; ``failed`` refused by the compiler, ``spilled``, and those whose
    shared memory (any number of stages) or launch registers differ from the solver's figure.

    Raises CompilerMismatch where this NVRTC or these sources are not the table's, and
    CompilerAbsent.
    """
    table = sm90_gemm_registers.register_table()
    here = (nvrtc.version(), source_hash())
    if here != (table.nvrtc, table.source_hash):
        raise CompilerMismatch(
            f"the register table is for NVRTC {table.nvrtc} and sources "
            f"{table.source_hash[:12]}, here are {here[0]} and {here[1][:12]}; run "
            "`python -m kernels.table` to measure it again"
        )
    keys = table_keys()
    if sample is not None:
        keys = random.Random(seed).sample(keys, min(sample, len(keys)))
    start = time.perf_counter()
    measured = list(measure_all(keys, processes))
    built = [m for m in measured if m.smem_bytes_by_stages]
    return {
        "family": family.NAME,
        "configs": len(keys),
        "failed": sum(bool(m.refused) and not m.spilled for m in measured),
        "spilled": sum(m.spilled for m in measured),
        "smem_mismatch": sum(not _smem_agrees(m) for m in built),
        "register_mismatch": sum(m.registers != table.of(m.key) for m in built),
        "nvrtc": table.nvrtc,
        "source_hash": table.source_hash,
        "arch": ARCH,
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    """``python -m kernels.table``: measure every key (minutes) and rewrite the table."""
    parser = argparse.ArgumentParser(
        description="Compile every compile key of the Hopper family, some minutes on every core, "
        "and write the launch registers that the compiler reports."
    )
    parser.add_argument(
        "--out", type=Path, default=TABLE_PATH, help="default: the table that ships"
    )
    parser.add_argument("--processes", type=int, help="default: one per core")
    arguments = parser.parse_args()
    write_table(arguments.out, arguments.processes)


if __name__ == "__main__":
    main()
