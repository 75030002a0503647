"""A PTX interpreter for the control flow of one CTA: integers exactly, most else opaque.

All threads of the CTA run at once, one numpy lane each. Threads at different instructions form
groups; the group at the lowest instruction runs, and groups meet again where they reach the
same one. What a group does that is no plain arithmetic (barriers, copies, products, memory) goes
to an observer as an Event, in the order in which each thread does it. Threads share nothing
here: values from memory are opaque unless the observer supplies them.

Opaque are floats (but for parameters and constants, which may be compared), whatever was loaded
from memory, results of atomics and registers never written; an integer computed from an opaque
one is opaque, and so is what a branch with an opaque predicate leaves out or not, where that is
arithmetic alone. Any other branch, predicate or operand of an event that is opaque is a PtxError,
never a guess; so is an unknown instruction, even one that is never reached. What else is wrong
with an instruction shows when it is reached.

An instruction for whole warps (``.sync``) runs once all 32 lanes of a warp are at it; where some
never come it is a PtxError.

``mbarrier.try_wait`` is one event, a wait that ends. Every thread sees it fail once and succeed
the second time: a thread that does anything else in between does not wait, and is a PtxError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.ptx_arithmetic import OPERATIONS, Operation, Values, with_sign
from kernels.ptx_events import (
    FLOATS,
    LOAD_PARAMETER,
    MAP_TO_CTA,
    POLICIES,
    TRY_WAIT,
    Event,
    Observed,
    Observer,
    is_known,
    observed,
)
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
from kernels.ptx_registers import (
    ALWAYS,
    CTA_WINDOW,
    WARP,
    Lanes,
    Launch,
    Registers,
    destination,
)

STEPS_MAX = 1_000_000  # instructions of a group of threads; a launch worth reading takes some 1 %
ONE = 0x3F800000  # the bits of the float

_Step = Callable[[Lanes], None]


@dataclass(frozen=True, slots=True)
class _Decoded:
    """An instruction made ready: a branch has a ``target``, an exit no ``step``. ``written`` are
    the registers that a branch leaves out where all that it skips is arithmetic, else None."""

    instruction: Instruction
    step: _Step | None
    target: int | None = None
    whole_warp: bool = False
    written: tuple[int, ...] | None = None


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
        self._retries = False  # whether any thread has
        self._retry_operands: Values = np.zeros((2, launch.threads), np.uint64)
        self._code: list[_Decoded | None] = [None] * len(entry.instructions)
        for instruction in entry.instructions:
            if not is_known(instruction.opcode):
                raise PtxError(f"{instruction}: unknown instruction {instruction.opcode}")

    def parameter_address(self, index: int) -> int:
        """The generic address of a parameter."""
        return self._registers.parameter_address(index)

    def is_variable(self, address: int) -> bool:
        """Whether a generic address is one of an array of the module's own."""
        return self._registers.is_variable(address)

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
                decoded = self._code[at] or self._decode(at)
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
                if active is lanes or active.any():
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
            f"warps, the others never come: {self._entry.instructions[at]}"
        )

    def _active(self, decoded: _Decoded, lanes: Lanes) -> Lanes:
        guard = decoded.instruction.guard
        if guard is None:
            return lanes
        values, known = self._registers.row(guard)
        if not known[lanes].all():
            self._skip(decoded, lanes & ~known)
        active: Lanes = lanes & (~known | (values != int(decoded.instruction.negated)))
        if decoded.whole_warp:
            by_warp = active.reshape(-1, WARP)
            if (by_warp.any(axis=1) != by_warp.all(axis=1)).any():
                raise PtxError(f"{decoded.instruction}: its predicate differs within a warp")
        return active

    def _skip(self, decoded: _Decoded, lanes: Lanes) -> None:
        """Threads in which the predicate of a branch over arithmetic alone is opaque: all that they
        skip, or would have done, is opaque after it."""
        if decoded.written is None:
            raise PtxError(f"{decoded.instruction}: its predicate depends on an opaque value")
        self._registers.forget(list(decoded.written), lanes)

    def _written(self, start: int, end: int) -> tuple[int, ...] | None:
        """Registers that the instructions of a stretch write; None where some do more."""
        written: list[int] = []
        if end < start:
            return None
        for instruction in self._entry.instructions[start:end]:
            first = instruction.operands[0] if instruction.operands else None
            items = first.items if isinstance(first, Vector) else (first,)
            registers = [item for item in items if isinstance(item, Register)]
            plain = instruction.opcode in OPERATIONS or instruction.opcode in FLOATS
            if not plain or len(registers) != len(items):
                return None
            written += [register.index for register in registers]
        return tuple(written)

    # ---- decoding

    def _decode(self, at: int) -> _Decoded:
        decoded = self._decoded(at, self._entry.instructions[at])
        self._code[at] = decoded
        return decoded

    def _decoded(self, at: int, instruction: Instruction) -> _Decoded:
        opcode = instruction.opcode
        if opcode in ("bra", "bra.uni"):
            (label,) = instruction.operands
            assert isinstance(label, Symbol)
            target = self._entry.labels[label.name]
            return _Decoded(instruction, None, target, written=self._written(at + 1, target))
        if opcode == "ret":
            return _Decoded(instruction, None)
        if opcode == "mov.b32" and isinstance(instruction.operands[0], Vector):
            return _Decoded(instruction, self._opaque(instruction.operands[0].items))
        if (operation := OPERATIONS.get(opcode)) is not None:
            return _Decoded(instruction, self._arithmetic(instruction, operation))
        if opcode in FLOATS:
            result = destination(instruction, FLOATS[opcode])
            return _Decoded(instruction, self._opaque((result,)))
        if opcode in POLICIES:
            return _Decoded(instruction, self._policy(instruction))
        if LOAD_PARAMETER.fullmatch(opcode):
            return _Decoded(instruction, self._load_parameter(instruction))
        if opcode == TRY_WAIT:
            return _Decoded(instruction, self._try_wait(at, instruction))
        if opcode == "bar.warp.sync":
            _require_whole_warp(instruction, instruction.operands[0])
            return _Decoded(instruction, self._observed(instruction, Observed((0,))), None, True)
        if opcode == "elect.sync":
            return _Decoded(instruction, self._elect(instruction), None, True)
        if opcode == "shfl.sync.idx.b32":
            return _Decoded(instruction, self._broadcast(instruction), None, True)
        if opcode == "shfl.sync.bfly.b32":
            return _Decoded(instruction, self._exchange(instruction), None, True)
        if opcode == MAP_TO_CTA:
            return _Decoded(instruction, self._map_to_cta(instruction))
        if opcode == "trap":
            return _Decoded(instruction, _trap(instruction))
        spec = observed(opcode)
        return _Decoded(instruction, self._observed(instruction, spec), None, spec.whole_warp)

    def _arithmetic(self, instruction: Instruction, operation: Operation) -> _Step:
        operands = instruction.operands[1:]
        if len(operands) != len(operation.inputs):
            raise PtxError(f"{instruction}: takes {len(operation.inputs)} inputs")
        register = destination(instruction, operation.result)
        sources = [
            (kind, *self._registers.source(instruction, operand, kind))
            for kind, operand in zip(operation.inputs, operands, strict=True)
        ]
        mask = None if register.bits == 64 else np.uint64((1 << register.bits) - 1)
        rows = [row for _, row, _ in sources]
        # Constants are known: only registers are asked.
        opaque = [known for _, _, known in sources if known is not ALWAYS]
        has_sign = any(kind[0] == "s" for kind in operation.inputs)
        function, values, known_values = operation.function, *self._registers.row(register)

        def step(lanes: Lanes) -> None:
            arguments = [with_sign(row, kind) for kind, row, _ in sources] if has_sign else rows
            known = opaque[0] if opaque else ALWAYS
            for also in opaque[1:]:
                known = known & also
            if operation.divides and ((arguments[1] == 0) & known & lanes).any():
                raise PtxError(f"{instruction}: division by zero")
            result = function(*arguments)
            if result.dtype != np.uint64:
                result = result.astype(np.uint64)
            np.copyto(values, result if mask is None else result & mask, where=lanes)
            np.copyto(known_values, known, where=lanes)

        return step

    def _opaque(self, registers: Sequence[Register]) -> _Step:
        rows = [register.index for register in registers]
        return lambda lanes: self._registers.forget(rows, lanes)

    def _policy(self, instruction: Instruction) -> _Step:
        """A cache policy for all lines of a copy; one for a part of them is an error."""
        register = destination(instruction, "b64")
        if instruction.operands[1:] != (Immediate(ONE, is_float=True),):
            raise PtxError(f"{instruction}: is no policy for all of a copy's lines")
        value = POLICIES[instruction.opcode]
        return lambda lanes: self._registers.write(register, value, lanes)

    def _load_parameter(self, instruction: Instruction) -> _Step:
        shape = LOAD_PARAMETER.fullmatch(instruction.opcode)
        assert shape is not None
        bits, count = int(shape["bits"] or shape["narrow"] or 32), int(shape["count"] or 1)
        wider = shape["kind"][0] == "u"  # which a larger register takes with zeros
        first, memory = instruction.operands
        items = first.items if isinstance(first, Vector) else (first,)
        floats = shape["kind"] == "f32"
        registers = [
            d
            for d in items
            if isinstance(d, Register)
            and d.is_float == floats
            and (d.bits == bits or (wider and d.bits > bits))
        ]
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
        values, known = self._registers.source(instruction, operand, "b32")
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

    def _exchange(self, instruction: Instruction) -> _Step:
        """A shuffle between the lanes of a whole warp, of values that stay opaque."""
        pair, _, _, _, mask = instruction.operands
        if not isinstance(pair, Pair) or pair.first is None:
            raise PtxError(f"{instruction}: unknown destination")
        (read,) = self._registers.inputs(instruction, mask)
        forget = self._opaque([item for item in (pair.first, pair.second) if item is not None])

        def step(lanes: Lanes) -> None:
            if (read(lanes)[lanes] != 0xFFFFFFFF).any():
                raise PtxError(f"{instruction}: only whole warps are understood")
            forget(lanes)

        return step

    def _map_to_cta(self, instruction: Instruction) -> _Step:
        """An address of shared memory, in the window of a CTA of the cluster."""
        register = destination(instruction, "u32")
        address, rank = (
            read
            for operand in instruction.operands[1:]
            for read in self._registers.inputs(instruction, operand)
        )

        def step(lanes: Lanes) -> None:
            ranks, addresses = rank(lanes), address(lanes)
            if (ranks[lanes] >= self._launch.cluster).any():
                raise PtxError(f"{instruction}: maps to a CTA that is not in the cluster")
            if (addresses[lanes] >= CTA_WINDOW).any():
                raise PtxError(f"{instruction}: maps what is no address of this CTA")
            mapped = addresses + (ranks + np.uint64(1)) * np.uint64(CTA_WINDOW)
            self._registers.write(register, mapped, lanes)

        return step

    # ---- what the observer sees

    def _event(
        self, instruction: Instruction, lanes: Lanes, values: tuple[Values, ...]
    ) -> int | None:
        if self._retries and (self._retry[lanes] >= 0).any():
            raise PtxError(f"{instruction}: follows a wait on an mbarrier that is not repeated")
        return self._observe(Event(instruction, lanes, values)) if lanes.any() else None

    def _observed(self, instruction: Instruction, spec: Observed) -> _Step:
        inputs = [
            read
            for i in spec.inputs
            if i < len(instruction.operands)
            for read in self._registers.inputs(instruction, instruction.operands[i])
        ]
        if spec.stored is not None:
            inputs.append(self._registers.stored(instruction, instruction.operands[spec.stored]))
        first = instruction.operands[0] if instruction.operands else None
        results: Sequence[Register] = ()
        if isinstance(first, Vector):
            results = first.items
        elif spec.result and isinstance(first, Register):
            results = (first,)
        elif spec.result or (0 not in spec.inputs and first is not None):
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
        complete = destination(instruction, "pred")
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
            self._retries = bool((self._retry >= 0).any())
            self._registers.write(complete, again, lanes)
            if again.any():
                self._event(instruction, again, tuple(operands))

        return step


def _require_whole_warp(instruction: Instruction, mask: Operand) -> None:
    if not isinstance(mask, Immediate) or mask.value not in (-1, 0xFFFFFFFF):
        raise PtxError(f"{instruction}: only whole warps are understood")


def _trap(instruction: Instruction) -> _Step:
    def step(lanes: Lanes) -> None:
        raise PtxError(f"{instruction}: the kernel refuses this launch")

    return step


def _join(groups: dict[int, Lanes], at: int, lanes: Lanes) -> None:
    if lanes.any():
        groups[at] = groups[at] | lanes if at in groups else lanes
