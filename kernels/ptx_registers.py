"""The registers of a CTA's threads, and how an instruction's operands are read and written.

Every register is a row of one uint64 per thread with a flag that says whether it is known. An
operand is looked up once, when its instruction is decoded; rows stay up to date after that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.ptx_arithmetic import TYPE_BITS, Values
from kernels.ptx_parser import (
    Entry,
    Immediate,
    Instruction,
    Memory,
    Operand,
    PtxError,
    Register,
    Special,
    Symbol,
)

WARP = 32
SHARED_BASE = 1024  # where Hopper's dynamic shared memory starts; not 0, so that a lost base shows
PARAMETER_BASE = 1 << 40
VARIABLE_BASE = 1 << 45
VARIABLE_ALIGN = 256
CTA_WINDOW = 1 << 24  # a cluster's shared memory: rank r's begins at (r + 1) windows

Lanes = npt.NDArray[np.bool_]
"""One flag per thread of the CTA."""
ALWAYS = np.ones(1, np.bool_)
OPAQUE = np.uint64((1 << 64) - 1)  # no word of 32 bits
"""The flag of what all threads know: a constant."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a CTA can ask about its launch.

    ``arguments`` holds the bytes of each parameter, None where they are opaque; ``cluster``
    CTAs that are neighbours are one; ``elected`` is the lane that ``elect.sync`` picks, which
    the hardware leaves open.
    """

    cta: int
    grid: int
    threads: int
    smem_bytes: int
    arguments: tuple[bytes | None, ...]
    cluster: int = 1
    elected: int = 0


class Registers:
    """Registers, special registers and parameters of one CTA.

    Raises PtxError for a launch that does not fit the entry.
    """

    def __init__(self, entry: Entry, launch: Launch) -> None:
        if launch.threads < 1 or launch.threads % WARP:
            raise PtxError(f"{launch.threads} threads are no whole number of warps")
        if len(launch.arguments) != len(entry.parameters):
            raise PtxError(f"{entry.name} takes {len(entry.parameters)} parameters")
        if SHARED_BASE % entry.shared_align:
            raise PtxError(f"shared memory must be aligned to {entry.shared_align} bytes")
        self._entry = entry
        self._launch = launch
        self._values: Values = np.zeros((entry.registers, launch.threads), np.uint64)
        self._known: Lanes = np.zeros((entry.registers, launch.threads), np.bool_)
        self.threads: Values = np.arange(launch.threads, dtype=np.uint64)
        self._special = {
            "%tid.x": self.threads,
            "%ntid.x": constant(launch.threads),
            "%ctaid.x": constant(launch.cta),
            "%nctaid.x": constant(launch.grid),
            "%cluster_nctaid.x": constant(launch.cluster),
            "%dynamic_smem_size": constant(launch.smem_bytes),
        }
        self._addresses: dict[str, int] = {}
        at = PARAMETER_BASE
        for parameter, argument in zip(entry.parameters, launch.arguments, strict=True):
            if argument is not None and len(argument) != parameter.size:
                raise PtxError(f"{parameter.name} takes {parameter.size} bytes")
            at = -(-at // parameter.align) * parameter.align
            self._addresses[parameter.name] = at
            at += parameter.size

        at = VARIABLE_BASE
        for name, size in entry.variables.items():
            self._addresses[name] = at
            at += -(-size // VARIABLE_ALIGN) * VARIABLE_ALIGN

    def row(self, register: Register) -> tuple[Values, Lanes]:
        """A register's values and whether they are known."""
        return self._values[register.index], self._known[register.index]

    def write(
        self, register: Register, values: Any, lanes: Lanes, known: Lanes | bool = True
    ) -> None:
        """Set a register in the threads of ``lanes``."""
        np.copyto(self._values[register.index], values, where=lanes)
        np.copyto(self._known[register.index], known, where=lanes)

    def forget(self, registers: list[int], lanes: Lanes) -> None:
        """Make registers, by index, opaque in the threads of ``lanes``."""
        for register in registers:
            np.copyto(self._known[register], False, where=lanes)

    def source(self, instruction: Instruction, operand: Operand, kind: str) -> tuple[Values, Lanes]:
        """Rows of an operand's values and of whether they are known: of one element where all
        threads share them. ``kind`` is a PTX type; one of bits takes integers and floats alike.

        Raises PtxError where the operand has another type or no meaning here.
        """
        bits, always = TYPE_BITS[kind], ALWAYS
        match operand:
            case Register() | Immediate() if kind[0] != "b" and operand.is_float != (
                kind[0] == "f"
            ):
                pass
            case Register() if operand.bits == bits:
                return self.row(operand)
            case Immediate(value) if -(1 << bits - 1) <= value < 1 << bits:
                return constant(value & (1 << bits) - 1), always
            case Special(name) if bits == 32 and name in self._special:
                return self._special[name], always
            case Symbol(name) if bits == 32 and name == self._entry.shared:
                return constant(SHARED_BASE), always
            case Symbol(name) if bits == 64 and name in self._addresses:
                return constant(self._addresses[name]), always
        raise PtxError(f"{instruction}: an operand of type {kind} is not understood: {operand}")

    def inputs(self, instruction: Instruction, operand: Operand) -> list[Callable[[Lanes], Values]]:
        """How to read an operand's integers, in order: an address, then its coordinates.

        What is returned raises PtxError where one of the threads it reads for has an opaque
        value.
        """
        if isinstance(operand, Memory):
            coordinates = [x for c in operand.coordinates for x in self.inputs(instruction, c)]
            shared = isinstance(operand.base, Symbol) and operand.base.name == self._entry.shared
            bits = operand.base.bits if isinstance(operand.base, Register) else 32 if shared else 64
            return [self._input(instruction, operand.base, bits, operand.offset), *coordinates]
        bits = operand.bits if isinstance(operand, Register) else 32
        return [self._input(instruction, operand, bits, 0)]

    def stored(self, instruction: Instruction, operand: Operand) -> Callable[[Lanes], Values]:
        """How to read a stored word, which is OPAQUE in threads where it is not known."""
        values, known = self.source(instruction, operand, "b32")
        return lambda lanes: np.broadcast_to(np.where(known, values, OPAQUE), self.threads.shape)

    def _input(
        self, instruction: Instruction, operand: Operand, bits: int, offset: int
    ) -> Callable[[Lanes], Values]:
        kind = "pred" if bits == 1 else f"u{bits}"
        values, known = self.source(instruction, operand, kind)
        added, mask = constant(offset & (1 << 64) - 1), np.uint64((1 << bits) - 1)
        if known is ALWAYS:
            same = np.broadcast_to((values + added) & mask, self.threads.shape)
            return lambda lanes: same

        def read(lanes: Lanes) -> Values:
            if not (known | ~lanes).all():
                raise PtxError(f"{instruction}: depends on an opaque value")
            return (values + added) & mask

        return read

    def parameter_address(self, index: int) -> int:
        """The generic address of a parameter."""
        return self._addresses[self._entry.parameters[index].name]

    def is_variable(self, address: int) -> bool:
        """Whether an address is one of an array in global memory."""
        return any(
            0 <= address - self._addresses[name] < size
            for name, size in self._entry.variables.items()
        )

    def parameter_value(self, instruction: Instruction, address: int, size: int) -> Any:
        """The ``size`` bytes at a parameter address, or PtxError."""
        for parameter, argument in zip(self._entry.parameters, self._launch.arguments, strict=True):
            offset = address - self._addresses[parameter.name]
            if argument is not None and 0 <= offset <= parameter.size - size and not offset % size:
                return np.uint64(int.from_bytes(argument[offset : offset + size], "little"))
        raise PtxError(f"{instruction}: reads what is no known parameter")


def destination(instruction: Instruction, kind: str) -> Register:
    """The register that an instruction writes, of a PTX type (of bits: of either kind); or
    PtxError."""
    first = instruction.operands[0]
    if (
        not isinstance(first, Register)
        or first.bits != TYPE_BITS[kind]
        or (kind[0] != "b" and first.is_float != (kind[0] == "f"))
    ):
        raise PtxError(f"{instruction}: unknown destination")
    return first


def constant(value: int) -> Values:
    """A row that all threads share."""
    return np.array([value], np.uint64)
