"""Reading constants back out of a cubin: an ELF file with a symbol table."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SYMBOL_TABLE = 2  # SHT_SYMTAB
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def _sections(cubin: bytes) -> list[_Section]:
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF file")
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count = struct.unpack_from("<HH", cubin, 58)
    fields = (_SECTION.unpack_from(cubin, start + i * size) for i in range(count))
    return [_Section(f[1], f[4], f[5], f[6]) for f in fields]


def read_int32_array(cubin: bytes, symbol: str) -> tuple[int, ...]:
    """The initial values of a global int array of that name.

    Raises ValueError where the file is no ELF64, KeyError where it has no such symbol.
    """
    sections = _sections(cubin)
    wanted = symbol.encode()
    for table in sections:
        if table.kind != _SYMBOL_TABLE:
            continue
        names = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, _, _, section, value, size = _SYMBOL.unpack_from(cubin, at)
            start = names + name
            if cubin[start : cubin.index(b"\0", start)] == wanted:
                return struct.unpack_from(f"<{size // 4}i", cubin, sections[section].offset + value)
    raise KeyError(symbol)
