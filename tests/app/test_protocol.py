"""The protocol over compile keys: what becomes of a kernel that can't be read."""

from __future__ import annotations

import pytest

from app import protocol
from kernels.ptx_parser import PtxError
from kernels.ring_launches import Launch
from solver.families import sm90_gemm as family

KEY = family.CompileKey("bf16", "tn", 64, 8, 64, 1, 0, 0)


def test_a_kernel_that_can_not_be_read_is_a_mismatch_and_the_next_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(ptx_text: str, launch: Launch) -> None:
        raise PtxError("PTX line 7: is not where this partial sum belongs")

    monkeypatch.setattr(protocol, "check_launch", refuse)
    read = protocol._read([KEY])
    assert read.mismatches == [
        {"kernel": KEY.name, "mismatch": "PTX line 7: is not where this partial sum belongs"}
    ] * len(read.launches)
    assert len(read.launches) == 9
