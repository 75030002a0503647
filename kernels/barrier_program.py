"""A compiled kernel's own barrier program: what each thread of a CTA does to synchronise.

It is read off the PTX by running it (``ptx_machine``) for one CTA of one launch. The ring's
protocol is proved on a description; that the kernel that ships follows the description is seen
by comparing it with this. PTX is what NVRTC hands to ptxas; what ptxas makes of it is not seen.

Names and slots come from the launch plan's shared-memory layout, not from the kernel: an address
that is no part of the layout is a PtxError, as is a product that reads anything but its own rows
of one slot, each once, a piece of C that is staged where TMA or its elements are not taken from,
and an element or a partial sum that lies elsewhere than its unit of work has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kernels import nvrtc
from kernels.barrier_observer import BarrierObserver
from kernels.launch_plan import LaunchPlan
from kernels.ptx_machine import Machine
from kernels.ptx_parser import PtxError, parse
from kernels.ptx_registers import WARP, Launch
from kernels.sources import headers as shipped_headers
from kernels.sources import instantiation, kernel_id, options
from solver.families.sm90_gemm import CompileKey
from solver.ring.program import WARPGROUP_WARPS
from solver.ring.steps import RING, Init, Op, Program, Step

VIRTUAL_ARCH = "compute_90a"


@dataclass(frozen=True, slots=True)
class Threads:
    """Lanes of a warp that do the same, and what each of them does."""

    lanes: tuple[int, ...]
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class WarpProgram:
    """What a warp does, in an order that is the order of each of its lanes.

    ``name`` is ``math0`` … or ``dma0`` …, as they lie in the block; under register_split there
    are DMA warps that only exit.
    """

    name: str
    warp: int
    steps: Program

    @property
    def ring(self) -> Program:
        """The steps that work the ring: barriers of its slots, loads and products."""
        return tuple(step for step in self.steps if isinstance(step.op, RING))

    def thread(self, lane: int) -> tuple[Op, ...]:
        """What one lane does."""
        return tuple(step.op for step in self.steps if lane in step)

    def threads(self) -> tuple[Threads, ...]:
        """The warp's lanes grouped by what they do, by lowest lane."""
        groups: dict[tuple[Op, ...], list[int]] = {}
        for lane in range(WARP):
            groups.setdefault(self.thread(lane), []).append(lane)
        return tuple(Threads(tuple(lanes), ops) for ops, lanes in groups.items())


@dataclass(frozen=True, slots=True)
class BarrierProgram:
    """What every warp of a CTA does, MATH warps first."""

    cta: int
    warps: tuple[WarpProgram, ...]

    @property
    def math(self) -> tuple[WarpProgram, ...]:
        """The MATH warps."""
        return tuple(warp for warp in self.warps if warp.name.startswith("math"))

    @property
    def dma(self) -> tuple[WarpProgram, ...]:
        """The DMA warps, those that only exit among them."""
        return tuple(warp for warp in self.warps if warp.name.startswith("dma"))

    def steps(self) -> Iterator[tuple[WarpProgram, Step]]:
        """Every step of every warp, warp by warp."""
        return ((warp, step) for warp in self.warps for step in warp.steps)

    @property
    def counts(self) -> dict[str, int]:
        """The arrivals each barrier was initialised with."""
        return {s.op.barrier: s.op.count for _, s in self.steps() if isinstance(s.op, Init)}


def kernel_ptx(key: CompileKey, headers: Mapping[str, str] | None = None) -> str:
    """The PTX of a compile key, from the headers that ship or from others by the same names.

    Raises CompileFailed and CompilerAbsent.
    """
    text = shipped_headers() if headers is None else headers
    return nvrtc.ptx(f"{kernel_id(key)}.cu", instantiation(key), text, options(VIRTUAL_ARCH))


_parsed = lru_cache(maxsize=1)(parse)  # one kernel is read for many launches


def barrier_program(
    ptx_text: str,
    plan: LaunchPlan,
    cta: int,
    *,
    last: Sequence[bool] = (True,),
    alpha: float = 1.0,
    beta: float = 0.0,
    elected: int = 0,
) -> BarrierProgram:
    """The barrier program of CTA ``cta`` of a launch.

    With split_k > 1 ``last`` says whether the CTA finds itself the last at the tile of each of its
    units in turn, over and over; ``elected`` is the lane that elect.sync picks.

    Raises PtxError for PTX of another kind, a launch that the kernel refuses, and whatever a
    thread does that can't be told, lies outside the layout or is not where it belongs.
    """
    if not 0 <= cta < plan.grid:
        raise PtxError(f"CTA {cta} is not one of the launch's {plan.grid}")
    entry = _parsed(ptx_text)
    observer = BarrierObserver(plan, cta, last=last, alpha=alpha, beta=beta)
    launch = Launch(
        cta=cta,
        grid=plan.grid,
        threads=plan.threads,
        smem_bytes=plan.smem_bytes,
        arguments=(None, None, None, observer.arguments),
        cluster=plan.cluster,
        elected=elected,
    )
    machine = Machine(entry, launch, observer)
    observer.expect_maps(tuple(machine.parameter_address(i) for i in range(3)))
    machine.run()
    math_warps = plan.config.math_warpgroups * WARPGROUP_WARPS
    return BarrierProgram(
        cta,
        tuple(
            WarpProgram(
                f"math{warp}" if warp < math_warps else f"dma{warp - math_warps}", warp, steps
            )
            for warp, steps in enumerate(observer.finish())
        ),
    )
