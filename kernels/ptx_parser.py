"""PTX text to instructions, for the one-entry modules that NVRTC makes of the kernels.

Only syntax: what an instruction does is ``ptx_machine``'s business. Whatever falls outside the
grammar below (functions, static shared memory, local memory, jump tables) is a PtxError.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from kernels.errors import KernelError

TARGET = "sm_90a"


class PtxError(KernelError):
    """PTX that can't be parsed or interpreted without a guess; the message names the line."""


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register. ``index`` is unique in the entry, whatever scope declares the name.

    ``bits`` is 1 for a predicate, 16, 32 or 64 for integers, 32 for floats.
    """

    index: int
    name: str
    bits: int
    is_float: bool = False


@dataclass(frozen=True, slots=True)
class Special:
    """A read-only register of the hardware, such as ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant: an integer, or a float's bits, those of one written as a decimal rounded."""

    value: int
    is_float: bool = False


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a parameter or of the dynamic shared memory, or a label."""

    name: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations, ``a|b``. None is the sink ``_``."""

    first: Register | None
    second: Register | None


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, …}``."""

    items: tuple[Register, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """``[base+offset]`` or ``[base, {coordinates}]``."""

    base: Register | Symbol
    offset: int = 0
    coordinates: tuple[Register | Immediate, ...] = ()


Operand = Register | Special | Immediate | Symbol | Pair | Vector | Memory | None
"""None is the sink ``_``."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: ``guard`` is its predicate, ``negated`` where it runs on false."""

    line: int
    text: str
    opcode: str
    operands: tuple[Operand, ...]
    guard: Register | None = None
    negated: bool = False

    def __str__(self) -> str:
        short = self.text if len(self.text) <= 100 else f"{self.text[:97]}..."
        return f"PTX line {self.line}: {short}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the entry, an array of bytes."""

    name: str
    size: int
    align: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel: ``labels`` maps each to the index of the instruction it stands before.

    ``shared`` names the dynamic shared memory, ``registers`` counts all that are declared;
    ``variables`` are names and bytes of arrays in global memory.
    """

    name: str
    parameters: tuple[Parameter, ...]
    shared: str
    shared_align: int
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    registers: int
    variables: dict[str, int]


_ENTRY = re.compile(r"\.visible\s+\.entry\s+(\w+)\s*\(([^)]*)\)([^{]*)\{")
_PARAMETER = re.compile(r"\.param\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\]")
_DYNAMIC = re.compile(r"\.extern\s+\.shared\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[\]\s*;")
_VARIABLE = re.compile(r"^\.global\s+\.align\s+\d+\s+\.b8\s+(\w+)\[(\d+)\]", re.MULTILINE)
_LABEL = re.compile(r"([$\w]+)\s*:(?!:)")
_REG = re.compile(r"\.reg\s+\.(\w+)\s+(.+)", re.DOTALL)
_DECLARED = re.compile(r"([%$\w]+)(?:<(\d+)>)?")
_INSTRUCTION = re.compile(r"(?:@(!?)([%$\w]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_SPECIAL = re.compile(r"%(?:n?tid|n?ctaid|cluster_nctaid)\.[xyz]|%dynamic_smem_size")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|0|[1-9]\d*)U?")
_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})")
_DECIMAL = re.compile(r"-?\d+\.\d+")
_ADDRESS = re.compile(r"([%$\w]+)(?:\s*\+\s*(-?\d+))?")
_BITS = {"pred": 1, "b16": 16, "b32": 32, "b64": 64, "f32": 32}
for _width in (16, 32, 64):
    _BITS |= {f"u{_width}": _width, f"s{_width}": _width}
_PRAGMAS = re.compile(r'\.pragma\s+"(nounroll|used_bytes_mask \w+)"')


def parse(text: str) -> Entry:
    """The one entry of a PTX module.

    Raises PtxError for another target, more than one entry, a function, static shared memory,
    or syntax that the kernels do not use.
    """
    if "/*" in text:
        raise PtxError("PTX with block comments is not understood")
    text = re.sub(r"//[^\n]*", "", text)
    target = re.search(r"^\.target\s+([^\n]+)", text, re.MULTILINE)
    if target is None or target[1].strip() != TARGET:
        raise PtxError(f"PTX is for {target[1].strip() if target else 'nothing'}, not {TARGET}")
    if not re.search(r"^\.address_size\s+64\s*$", text, re.MULTILINE):
        raise PtxError("PTX does not have 64-bit addresses")
    entries = list(_ENTRY.finditer(text))
    if len(entries) != 1 or text.count(".entry") != 1 or ".func" in text:
        raise PtxError(f"PTX must hold one entry and no function, has {len(entries)} entries")
    entry = entries[0]
    dynamic = list(_DYNAMIC.finditer(text, 0, entry.start()))
    if len(dynamic) != 1 or len(re.findall(r"\.shared\s", text)) != 1:
        raise PtxError("PTX must declare dynamic shared memory, once, and no other")
    parameters = tuple(
        Parameter(name, int(size), int(align)) for align, name, size in _PARAMETER.findall(entry[2])
    )
    if len(parameters) != entry[2].count(".param"):
        raise PtxError(f"parameters are not understood: {' '.join(entry[2].split())}")
    found = _VARIABLE.findall(text[: entry.start()])
    variables = {name: int(size) for name, size in found}
    body = _Body({p.name for p in parameters} | {dynamic[0][2]} | set(variables))
    rest = body.read(text[entry.end() :], 1 + text.count("\n", 0, entry.end()))
    if rest.strip():
        raise PtxError(f"PTX goes on after the entry: {rest.strip()[:60]}")
    for instruction in body.instructions:
        if instruction.opcode.split(".")[0] == "bra":
            target_label = instruction.operands[0] if len(instruction.operands) == 1 else None
            if not isinstance(target_label, Symbol) or target_label.name not in body.labels:
                raise PtxError(f"{instruction}: a branch to an unknown label")
    return Entry(
        entry[1],
        parameters,
        dynamic[0][2],
        int(dynamic[0][1]),
        tuple(body.instructions),
        body.labels,
        body.registers,
        variables,
    )


@dataclass
class _Body:
    """What has been read of an entry's body, and the registers in scope, innermost last."""

    symbols: set[str]
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    scopes: list[dict[str, Register]] = field(default_factory=lambda: [{}])
    registers: int = 0

    def read(self, text: str, line: int) -> str:
        """Read up to the brace that closes the entry; returns what follows it."""
        at = 0
        while True:
            start = at
            while at < len(text) and text[at].isspace():
                at += 1
            line += text.count("\n", start, at)
            if at == len(text):
                raise PtxError("the entry's body does not end")
            if text[at] in "{}":
                if text[at] == "{":
                    self.scopes.append({})
                else:
                    self.scopes.pop()
                    if not self.scopes:
                        return text[at + 1 :]
                at += 1
            elif label := _LABEL.match(text, at):
                if label[1] in self.labels:
                    raise PtxError(f"PTX line {line}: label {label[1]} stands twice")
                self.labels[label[1]] = len(self.instructions)
                at = label.end()
            else:
                end = text.find(";", at)
                if end < 0:
                    raise PtxError(f"PTX line {line}: a statement does not end")
                self._statement(text[at:end], line)
                line += text.count("\n", at, end)
                at = end + 1

    def _statement(self, text: str, line: int) -> None:
        if declared := _REG.fullmatch(text):
            self._declare(declared[1], declared[2], line)
        elif text.startswith("."):
            if not _PRAGMAS.fullmatch(text):
                raise PtxError(f"PTX line {line}: unknown directive {text.split()[0]}: {text}")
        elif parts := _INSTRUCTION.fullmatch(text):
            self.instructions.append(
                Instruction(
                    line,
                    " ".join(text.split()),
                    parts[3],
                    tuple(self._operand(operand, line) for operand in _split(parts[4])),
                    self._register(parts[2], line) if parts[2] else None,
                    bool(parts[1]),
                )
            )
        else:
            raise PtxError(f"PTX line {line}: not understood: {text}")

    def _declare(self, kind: str, names: str, line: int) -> None:
        if kind not in _BITS:
            raise PtxError(f"PTX line {line}: unknown register type .{kind}")
        for part in names.split(","):
            declared = _DECLARED.fullmatch(part.strip())
            if declared is None:
                raise PtxError(f"PTX line {line}: not understood: {names}")
            name, count = declared[1], declared[2]
            for each in [name] if count is None else [f"{name}{i}" for i in range(int(count))]:
                register = Register(self.registers, each, _BITS[kind], kind == "f32")
                self.scopes[-1][each] = register
                self.registers += 1

    def _register(self, name: str, line: int) -> Register:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise PtxError(f"PTX line {line}: {name} is no register in scope")

    def _operand(self, text: str, line: int) -> Operand:
        if text == "_":
            return None
        if text.startswith("[") and text.endswith("]"):
            return self._memory(text[1:-1].strip(), line)
        if text.startswith("{") and text.endswith("}"):
            return Vector(tuple(self._register(name, line) for name in _split(text[1:-1])))
        if "|" in text:
            first, second = (
                None if name.strip() == "_" else self._register(name.strip(), line)
                for name in text.split("|")
            )
            return Pair(first, second)
        if _SPECIAL.fullmatch(text):
            return Special(text)
        if _INTEGER.fullmatch(text):
            return Immediate(int(text.rstrip("U"), 0))
        if bits := _FLOAT.fullmatch(text):
            return Immediate(int(bits[1], 16), is_float=True)
        if _DECIMAL.fullmatch(text):
            return Immediate(int.from_bytes(struct.pack("<f", float(text)), "little"), True)
        if text in self.symbols or text.startswith("$"):
            return Symbol(text)
        return self._register(text, line)

    def _memory(self, text: str, line: int) -> Memory:
        address, *more = _split(text)
        parts = _ADDRESS.fullmatch(address)
        if parts is None or len(more) > 1:
            raise PtxError(f"PTX line {line}: not understood: [{text}]")
        base = Symbol(parts[1]) if parts[1] in self.symbols else self._register(parts[1], line)
        coordinates: list[Register | Immediate] = []
        for coordinate in _split(more[0].strip("{} ")) if more else []:
            operand = self._operand(coordinate, line)
            if not isinstance(operand, Register | Immediate):
                raise PtxError(f"PTX line {line}: not understood: [{text}]")
            coordinates.append(operand)
        return Memory(base, int(parts[2] or 0), tuple(coordinates))


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last or parts else []
