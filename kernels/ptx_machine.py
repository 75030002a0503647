"""A PTX interpreter for the control flow of one CTA: integers exactly, everything else opaque.

All threads of the CTA run at once, one numpy lane each. Threads at different instructions form
groups; the group at the lowest instruction runs, and groups meet again where they reach the
same one. What a group does that is no plain arithmetic (barriers, copies, products, memory) goes
to an observer as an Event, in the order in which each thread does it. Threads share nothing
here: values from memory are opaque unless the observer supplies them.

Opaque are floats, whatever was loaded from memory, results of atomics and registers never
written; an integer computed from an opaque one is opaque. A branch, a predicate or an operand of
an event that is opaque is a PtxError, never a guess; so is an unknown instruction, even one that
is never reached.

An instruction for whole warps (``.sync``) runs once all 32 lanes of a warp are at it; where some
never come it is a PtxError.

``mbarrier.try_wait`` is one event, a wait that ends. Every thread sees it fail once and succeed
the second time: a thread that does anything else in between does not wait, and is a PtxError.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels.ptx_arithmetic import OPERATIONS, TYPE_BITS, Operation, Values, with_sign
from kernels.ptx_parser import (
    Entry,
    Immediate,
    Instruction,
    Memory,
    Operand,
    Pair,
    PtxError,
    Register,
    Symbol,
    Vector,
)
from kernels.ptx_registers import WARP, Lanes, Launch, Registers, destination

STEPS_MAX = 1_000_000  # instructions of a group of threads; a launch worth reading takes some 1 %


@dataclass(frozen=True, slots=True)
class Event:
    """An instruction that some threads execute together, and its integer operands.

    ``values`` holds a row of one uint64 per thread for each operand that the instruction reads
    as an integer, an address before its coordinates; only those of ``lanes`` count.
    """

    instruction: Instruction
    lanes: Lanes
    values: tuple[Values, ...]


Observer = Callable[[Event], int | None]
"""Called with each event. For a load: the value that all its threads read, None if opaque."""


@dataclass(frozen=True, slots=True)
class _Observed:
    """How an event's operands are read: which are integer inputs, whether the first is a result,
    and whether a whole warp executes it at once."""

    inputs: tuple[int, ...] = ()
    result: bool = False
    whole_warp: bool = False


LOAD_TILE = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
STORE_TILE = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
_OBSERVED = {
    "mbarrier.init.shared::cta.b64": _Observed((0, 1)),
    "mbarrier.arrive.shared::cta.b64": _Observed((1,)),
    "mbarrier.arrive.expect_tx.shared::cta.b64": _Observed((1, 2)),
    "fence.mbarrier_init.release.cluster": _Observed(),
    "fence.proxy.async.shared::cta": _Observed(),
    "fence.acq_rel.gpu": _Observed(),
    "bar.sync": _Observed((0, 1), whole_warp=True),
    LOAD_TILE: _Observed((0, 1, 2)),
    STORE_TILE: _Observed((0, 1)),
    "cp.async.bulk.commit_group": _Observed(),
    "cp.async.bulk.wait_group.read": _Observed((0,)),
    "prefetch.tensormap": _Observed((0,)),
    "wgmma.fence.sync.aligned": _Observed(whole_warp=True),
    "wgmma.commit_group.sync.aligned": _Observed(whole_warp=True),
    "wgmma.wait_group.sync.aligned": _Observed((0,), whole_warp=True),
    "stmatrix.sync.aligned.m8n8.x2.shared.b16": _Observed((0,), whole_warp=True),
    "stmatrix.sync.aligned.m8n8.x4.shared.b16": _Observed((0,), whole_warp=True),
    "setmaxnreg.inc.sync.aligned.u32": _Observed((0,), whole_warp=True),
    "setmaxnreg.dec.sync.aligned.u32": _Observed((0,), whole_warp=True),
    "ld.shared.u16": _Observed((1,), result=True),
    "ld.shared.u32": _Observed((1,), result=True),
    "st.shared.u32": _Observed((0,)),
    "ld.global.cg.v4.f32": _Observed((1,), result=True),
    "st.global.cg.v4.f32": _Observed((0,)),
    "st.global.u16": _Observed((0,)),
    "atom.global.inc.u32": _Observed((1, 2), result=True),
}
_MMA = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k16\.f32\.(bf16\.bf16|f16\.f16)")
_PRODUCT = _Observed((1, 2, 3, 4, 5, 6, 7), whole_warp=True)
_FLOATS = ("mov.f32", "add.f32", "cvt.rn.bf16x2.f32", "cvt.rn.f16x2.f32")
_LOAD_PARAMETER = re.compile(r"ld\.param(?:\.v(?P<count>2|4))?\.[usb](?P<bits>32|64)")
_TRY_WAIT = "mbarrier.try_wait.parity.shared::cta.b64"

_Step = Callable[[Lanes], None]


@dataclass(frozen=True, slots=True)
class _Decoded:
    """An instruction made ready: a branch has a ``target``, an exit no ``step``."""

    instruction: Instruction
    step: _Step | None
    target: int | None = None
    whole_warp: bool = False


class Machine:
    """One CTA of a launch. ``run`` it once.

    Raises PtxError for an instruction or operand it does not know, and for a launch that does
    not fit the entry.
    """

    def __init__(self, entry: Entry, launch: Launch, observe: Observer) -> None:
        self._entry = entry
        self._launch = launch
        self._observe = observe
        self._registers = Registers(entry, launch)
        # Which try_wait of which barrier and parity a thread has to come back to; -1: none.
        self._retry = np.full(launch.threads, -1, np.int64)
        self._retry_operands: Values = np.zeros((2, launch.threads), np.uint64)
        self._code = [self._decode(at, i) for at, i in enumerate(entry.instructions)]

    def parameter_address(self, index: int) -> int:
        """The generic address of a parameter."""
        return self._registers.parameter_address(index)

    def run(self) -> None:
        """Run every thread to its exit. Raises PtxError."""
        groups: dict[int, Lanes] = {0: np.ones(self._launch.threads, np.bool_)}
        stalled: dict[int, Lanes] = {}
        steps = 0
        while groups:
            at = min(groups)
            lanes = groups.pop(at)
            if at in stalled:
                lanes = lanes | stalled.pop(at)
            while True:
                steps += 1
                if steps > STEPS_MAX:
                    raise PtxError(f"no end after {STEPS_MAX} instructions")
                if at == len(self._code):
                    raise PtxError("threads run beyond the last instruction")
                decoded = self._code[at]
                if decoded.whole_warp:
                    whole = np.repeat(lanes.reshape(-1, WARP).all(axis=1), WARP)
                    if (lanes & ~whole).any():
                        stalled[at] = lanes & ~whole
                        lanes = whole
                        if not lanes.any():
                            break
                active = self._active(decoded, lanes)
                if decoded.target is not None or decoded.step is None:
                    if decoded.target is not None:
                        _join(groups, decoded.target, active)
                    else:
                        self._event(decoded.instruction, active, ())
                    _join(groups, at + 1, lanes & ~active)
                    break
                if active.any():
                    decoded.step(active)
                at += 1
                if at in groups or at in stalled:
                    _join(groups, at, lanes)
                    break
        if stalled:
            raise PtxError("; ".join(self._words(at, lanes) for at, lanes in stalled.items()))

    def _words(self, at: int, lanes: Lanes) -> str:
        thread = int(np.flatnonzero(lanes)[0])
        count = int(lanes.reshape(-1, WARP)[thread // WARP].sum())
        return (
            f"{count} of the 32 lanes of warp {thread // WARP} are at an instruction for whole "
            f"warps, the others never come: {self._code[at].instruction}"
        )

    def _active(self, decoded: _Decoded, lanes: Lanes) -> Lanes:
        guard = decoded.instruction.guard
        if guard is None:
            return lanes
        values, known = self._registers.row(guard)
        if not known[lanes].all():
            raise PtxError(f"{decoded.instruction}: its predicate depends on an opaque value")
        active: Lanes = lanes & (values != int(decoded.instruction.negated))
        if decoded.whole_warp:
            by_warp = active.reshape(-1, WARP)
            if (by_warp.any(axis=1) != by_warp.all(axis=1)).any():
                raise PtxError(f"{decoded.instruction}: its predicate differs within a warp")
        return active

    # ---- decoding

    def _decode(self, at: int, instruction: Instruction) -> _Decoded:
        opcode = instruction.opcode
        if opcode in ("bra", "bra.uni"):
            (label,) = instruction.operands
            assert isinstance(label, Symbol)
            return _Decoded(instruction, None, self._entry.labels[label.name])
        if opcode == "ret":
            return _Decoded(instruction, None)
        if (operation := OPERATIONS.get(opcode)) is not None:
            return _Decoded(instruction, self._arithmetic(instruction, operation))
        if opcode in _FLOATS:
            return _Decoded(instruction, self._opaque([destination(instruction)]))
        if _LOAD_PARAMETER.fullmatch(opcode):
            return _Decoded(instruction, self._load_parameter(instruction))
        if opcode == _TRY_WAIT:
            return _Decoded(instruction, self._try_wait(at, instruction))
        if opcode == "bar.warp.sync":
            _require_whole_warp(instruction, instruction.operands[0])
            return _Decoded(instruction, self._observed(instruction, _Observed((0,))), None, True)
        if opcode == "elect.sync":
            return _Decoded(instruction, self._elect(instruction), None, True)
        if opcode == "shfl.sync.idx.b32":
            return _Decoded(instruction, self._broadcast(instruction), None, True)
        if opcode == "trap":
            return _Decoded(instruction, _trap(instruction))
        observed = _PRODUCT if _MMA.fullmatch(opcode) else _OBSERVED.get(opcode)
        if observed is None:
            raise PtxError(f"{instruction}: unknown instruction {opcode}")
        step = self._observed(instruction, observed)
        return _Decoded(instruction, step, None, observed.whole_warp)

    def _arithmetic(self, instruction: Instruction, operation: Operation) -> _Step:
        operands = instruction.operands[1:]
        if len(operands) != len(operation.inputs):
            raise PtxError(f"{instruction}: takes {len(operation.inputs)} inputs")
        register = destination(instruction, TYPE_BITS[operation.result])
        sources = [
            (kind, *self._registers.source(instruction, operand, TYPE_BITS[kind]))
            for kind, operand in zip(operation.inputs, operands, strict=True)
        ]
        mask = np.uint64((1 << register.bits) - 1)

        def step(lanes: Lanes) -> None:
            arguments = [with_sign(row, kind) for kind, row, _ in sources]
            known = sources[0][2]
            for _, _, also in sources[1:]:
                known = known & also
            if operation.divides and ((arguments[1] == 0) & known & lanes).any():
                raise PtxError(f"{instruction}: division by zero")
            result = operation.function(*arguments).astype(np.uint64, copy=False) & mask
            self._registers.write(register, result, lanes, known)

        return step

    def _opaque(self, registers: list[Register]) -> _Step:
        integers = [register for register in registers if register.bits]

        def step(lanes: Lanes) -> None:
            for register in integers:
                self._registers.forget(register, lanes)

        return step

    def _load_parameter(self, instruction: Instruction) -> _Step:
        shape = _LOAD_PARAMETER.fullmatch(instruction.opcode)
        assert shape is not None
        bits, count = int(shape["bits"]), int(shape["count"] or 1)
        first, memory = instruction.operands
        items = first.items if isinstance(first, Vector) else (first,)
        registers = [d for d in items if isinstance(d, Register) and d.bits == bits]
        if not isinstance(memory, Memory) or not len(items) == len(registers) == count:
            raise PtxError(f"{instruction}: not understood")
        (read,) = self._registers.inputs(instruction, memory)

        def step(lanes: Lanes) -> None:
            address, *others = np.unique(read(lanes)[lanes]).tolist()
            if others:
                raise PtxError(f"{instruction}: threads read different parameters")
            for i, register in enumerate(registers):
                at = address + i * bits // 8
                value = self._registers.parameter_value(instruction, at, bits // 8)
                self._registers.write(register, value, lanes)

        return step

    # ---- instructions of whole warps

    def _elect(self, instruction: Instruction) -> _Step:
        pair, mask = instruction.operands
        _require_whole_warp(instruction, mask)
        if not isinstance(pair, Pair) or pair.first is not None or pair.second is None:
            raise PtxError(f"{instruction}: unknown destination")
        register = pair.second
        elected = self._registers.threads % WARP == self._launch.elected
        return lambda lanes: self._registers.write(register, elected, lanes)

    def _broadcast(self, instruction: Instruction) -> _Step:
        """A shuffle that gives one lane's value to its whole warp; another is an error."""
        pair, operand, *control = instruction.operands
        if not isinstance(pair, Pair) or pair.first is None or pair.first.bits != 32:
            raise PtxError(f"{instruction}: unknown destination")
        register, in_range = pair.first, pair.second
        values, known = self._registers.source(instruction, operand, 32)
        reads = [read for each in control for read in self._registers.inputs(instruction, each)]

        def step(lanes: Lanes) -> None:
            lane, clamp, mask = (np.unique(read(lanes)[lanes]).tolist() for read in reads)
            if len(lane) != 1 or lane[0] >= WARP or clamp != [31] or mask != [0xFFFFFFFF]:
                raise PtxError(f"{instruction}: is no broadcast to a whole warp")
            source = np.arange(len(lanes)) // WARP * WARP + lane[0]
            sent = np.broadcast_to(values, lanes.shape)[source]
            self._registers.write(
                register, sent, lanes, np.broadcast_to(known, lanes.shape)[source]
            )
            if in_range is not None:
                self._registers.write(in_range, 1, lanes)

        return step

    # ---- what the observer sees

    def _event(
        self, instruction: Instruction, lanes: Lanes, values: tuple[Values, ...]
    ) -> int | None:
        if (self._retry[lanes] >= 0).any():
            raise PtxError(f"{instruction}: follows a wait on an mbarrier that is not repeated")
        return self._observe(Event(instruction, lanes, values)) if lanes.any() else None

    def _observed(self, instruction: Instruction, spec: _Observed) -> _Step:
        inputs = [
            read
            for i in spec.inputs
            if i < len(instruction.operands)
            for read in self._registers.inputs(instruction, instruction.operands[i])
        ]
        first = instruction.operands[0] if instruction.operands else None
        results: list[Register] = []
        if spec.result:
            results = list(first.items) if isinstance(first, Vector) else [destination(instruction)]
        elif 0 not in spec.inputs and first is not None and not _is_float_vector(first):
            # Only the accumulators of a product may be written behind the observer's back.
            raise PtxError(f"{instruction}: unknown destination")
        forget = self._opaque(results)

        def step(lanes: Lanes) -> None:
            value = self._event(instruction, lanes, tuple(read(lanes) for read in inputs))
            forget(lanes)
            if value is not None:
                (register,) = results
                self._registers.write(register, value, lanes)

        return step

    def _try_wait(self, at: int, instruction: Instruction) -> _Step:
        complete = destination(instruction, 1)
        reads = [
            read
            for operand in instruction.operands[1:]
            for read in self._registers.inputs(instruction, operand)
        ]
        if len(reads) != 2:
            raise PtxError(f"{instruction}: takes a barrier and a parity")

        def step(lanes: Lanes) -> None:
            operands = np.stack([read(lanes) for read in reads])
            again = lanes & (self._retry == at)
            others = lanes & ~again & (self._retry >= 0)
            if others.any() or (self._retry_operands != operands)[:, again].any():
                raise PtxError(f"{instruction}: not the wait that failed before")
            np.copyto(self._retry_operands, operands, where=lanes)
            np.copyto(self._retry, at, where=lanes)
            np.copyto(self._retry, -1, where=again)
            self._registers.write(complete, again, lanes)
            if again.any():
                self._event(instruction, again, tuple(operands))

        return step


def _require_whole_warp(instruction: Instruction, mask: Operand) -> None:
    if not isinstance(mask, Immediate) or mask.value not in (-1, 0xFFFFFFFF):
        raise PtxError(f"{instruction}: only whole warps are understood")


def _is_float_vector(operand: Operand) -> bool:
    return isinstance(operand, Vector) and not any(register.bits for register in operand.items)


def _trap(instruction: Instruction) -> _Step:
    def step(lanes: Lanes) -> None:
        raise PtxError(f"{instruction}: the kernel refuses this launch")

    return step


def _join(groups: dict[int, Lanes], at: int, lanes: Lanes) -> None:
    if lanes.any():
        groups[at] = groups[at] | lanes if at in groups else lanes
