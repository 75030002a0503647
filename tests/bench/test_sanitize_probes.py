"""The kernels that show what racecheck can't follow are right: proved from their PTX."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from bench.sanitize_probes import (
    PROBES,
    ROUNDS,
    SMEM_BYTES,
    THREADS,
    arguments,
    expected_sums,
    hand_over_cubin,
    hand_over_source,
)
from kernels import nvrtc
from kernels.barrier_collect import Collector, Handler
from kernels.barrier_steps import WarpBarrier
from kernels.norm.warp_order import require_together
from kernels.ptx_events import TRY_WAIT, Event
from kernels.ptx_machine import Machine
from kernels.ptx_parser import Entry, PtxError, parse
from kernels.ptx_registers import WARP, Launch
from kernels.sources import options
from solver.ring.state import Fault
from solver.ring.steps import Arrive, Fence, Init, Op, Program, Sync, Wait
from solver.ring.stream import Stream
from solver.ring.stream_machine import explore_stream
from solver.ring.stream_steps import OF_ITS_LANES, ReadSlot, SyncArrive, WriteSlot

HANDED = [name for name in PROBES if name != "in_warp"]
FEW = 5  # rounds: each barrier goes round more than twice


def entry_of(name: str, source: str) -> Entry:
    """A probe's kernel alone."""
    text = nvrtc.ptx("hand_over.cu", source, {}, options("compute_90a"))
    kernels = re.split(r"(?=\.visible \.entry)", text)
    own = next(kernel for kernel in kernels if f"{PROBES[name].kernel}(" in kernel)
    return parse(kernels[0] + own)


class Observer:
    """The steps of a probe's warps: slot 0 is its words, its barriers ``full[0]``, ``empty[0]``."""

    def __init__(self) -> None:
        self.steps = Collector(THREADS // WARP, OF_ITS_LANES)
        self._barriers: list[int] = []
        each = self.steps.each
        self._handlers: dict[str, Handler] = {
            "mbarrier.init.shared::cta.b64": each(lambda _, at, n: Init(self._named(at), n)),
            "mbarrier.arrive.shared::cta.b64": each(lambda _, at: Arrive(self._named(at))),
            TRY_WAIT: each(lambda _, at, parity: Wait(self._named(at), parity)),
            "fence.mbarrier_init.release.cluster": each(_fence),
            "fence.proxy.async.shared::cta": each(_fence),
            "bar.sync": each(lambda _, number, *n: Sync(number, (n or (THREADS,))[0] // WARP)),
            "bar.arrive": each(lambda _, number, n: SyncArrive(number, n // WARP)),
            "bar.warp.sync": each(lambda _, mask: WarpBarrier()),
            "st.shared.u32": self._all(WriteSlot(0)),
            "ld.shared.u32": self._all(ReadSlot(0)),
            "st.global.u32": lambda _: None,
            "ret": lambda _: None,
        }

    def _named(self, address: int) -> str:
        if address not in self._barriers:
            self._barriers.append(address)
        return ("full[0]", "empty[0]")[self._barriers.index(address)]

    def _all(self, op: Op) -> Callable[[Event], None]:
        return lambda event: self.steps.add_to_all(event, op)

    def __call__(self, event: Event) -> int | None:
        return self._handlers[event.instruction.opcode](event)


def _fence(event: Event) -> Op:
    return Fence(event.instruction.opcode.removeprefix("fence."))


def programs_of(name: str, source: str, rounds: int = FEW) -> dict[str, Program]:
    observer = Observer()
    launch = Launch(0, 1, THREADS, SMEM_BYTES, (arguments(1 << 40, rounds).tobytes(),))
    Machine(entry_of(name, source), launch, observer).run()
    producer, consumer = observer.steps.programs()
    return {"producer0": producer, "consumer0": consumer}


def explored(name: str, source: str) -> Fault | int:
    """Every order of a probe's steps; each lane's word has been put by another."""
    programs = programs_of(name, source)
    for warp, steps in programs.items():
        require_together(warp, steps)
    played = {
        warp: tuple(step for step in steps if not isinstance(step.op, WarpBarrier))
        for warp, steps in programs.items()
    }
    barrier = "named" if name == "named" else "mbarrier"
    ring = Stream(1, 1, 1, producers=1, groups=1, depth=1, copies="vector", barrier=barrier)
    return explore_stream(ring, played, lumped=True)


@pytest.mark.parametrize("name", HANDED)
def test_no_order_of_a_probes_steps_breaks_anything(name: str) -> None:
    source = hand_over_source()
    outcome = explored(name, source)
    assert isinstance(outcome, int), str(outcome)
    consumer = programs_of(name, source)["consumer0"]
    assert sum(isinstance(step.op, ReadSlot) for step in consumer) == FEW


@pytest.mark.parametrize("name", HANDED)
def test_a_probe_that_gives_its_slot_back_early_is_refuted(name: str) -> None:
    taken = "      sum += taken(slot);\n"
    over = "      if (kHow != kNamed || round + 1 < args.rounds) over<kHow>(empty);\n"
    source = hand_over_source()
    assert source.count(taken + over) == 1
    assert isinstance(explored(name, source.replace(taken + over, over + taken)), Fault)


def test_a_probe_whose_lanes_do_not_meet_is_refused() -> None:
    source = hand_over_source()
    meets = "over(u32 barrier) {\n  __syncwarp();\n"
    assert source.count(meets) == 1
    apart = source.replace(meets, meets.replace("  __syncwarp();\n", ""))
    with pytest.raises(PtxError, match="for lane 1 too"):
        explored("one_arrives", apart)
    explored("each_arrives", apart)


def test_within_a_warp_lanes_meet_between_any_two_accesses() -> None:
    steps = programs_of("in_warp", hand_over_source())["producer0"]
    accesses = [at for at, step in enumerate(steps) if not isinstance(step.op, WarpBarrier)]
    assert len(accesses) == 2 * FEW
    assert all(later - at == 2 for at, later in pairwise(accesses))


def test_probes_compile() -> None:
    assert all(probe.kernel.encode() in hand_over_cubin() for probe in PROBES.values())


def test_what_a_probe_comes_to_is_what_was_put() -> None:
    put = np.array([[r + lane for lane in range(WARP)] for r in range(ROUNDS)])
    taken = put[:, ::-1].sum(axis=0)
    assert (expected_sums("named") == [*[0] * WARP, *taken]).all()
    assert (expected_sums("in_warp") == [*taken, *taken]).all()
