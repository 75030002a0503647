"""The protocol over compile keys: what becomes of a kernel that can't be read."""

from __future__ import annotations

import pytest

from app import norm_protocol, protocol
from kernels.norm.ring_launches import NormLaunch
from kernels.ptx_parser import Entry, PtxError
from kernels.ring_launches import Launch
from solver.families import sm90_gemm as family
from solver.families.norm_activation import NormConfig, NormProblem

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


def test_a_norm_kernel_that_can_not_be_read_is_a_mismatch_and_the_next_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(entry: Entry, launch: NormLaunch) -> None:
        raise PtxError("PTX line 7: is not y")

    monkeypatch.setattr(norm_protocol, "check_launch", refuse)
    problem = NormProblem(64, 256)
    read = norm_protocol._read([(problem, NormConfig("strong", 4, team=team)) for team in (2, 4)])
    assert len(read.mismatches) == len(read.launches) > 2
    assert {mismatch["mismatch"] for mismatch in read.mismatches} == {"PTX line 7: is not y"}
    assert len({mismatch["kernel"] for mismatch in read.mismatches}) == 2
