"""Launch registers of the Hopper GEMM family's kernels, as the compiler reported them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from solver.families.sm90_gemm import CompileKey


@dataclass(frozen=True, slots=True)
class RegisterTable:
    """Launch registers by form of compile key, as one compiler version reported them.

    bf16 and fp16 kernels of one form have the same: ``warpwright bench compile`` compiles
    every key of both and holds it against this.
    """

    nvrtc: str
    source_hash: str
    registers: Mapping[str, int]
    refused: Mapping[str, str]

    def of(self, key: CompileKey) -> int:
        """Launch registers of a key, 0 where the compiler refuses it."""
        return self.registers.get(key.form, 0)


@cache
def register_table() -> RegisterTable:
    """The table that ships: every form of the domain is in it, as legal or as refused."""
    text = resources.files("solver.families").joinpath("sm90_gemm_registers.json").read_text()
    raw = json.loads(text)
    return RegisterTable(raw["nvrtc"], raw["source_hash"], raw["registers"], raw["refused"])
