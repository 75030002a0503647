"""Triton's kernel compiles for a Hopper as every configuration has it. Needs Triton, no GPU."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

from kernels.triton_gemm import CONFIGS, GROUP, TritonConfig, persistent_gemm
from solver.device import load_profile

CAPABILITY, WARP = 90, 32
CONSTANTS = ("tile_m", "tile_n", "tile_k", "group", "halves", "specialised")


def compiled(config: TritonConfig, dtype: str, out: str) -> Any:
    from triton import compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    c_columns = config.tile_n // 2 if config.halves else config.tile_n
    signature = {
        "a_map": f"tensordesc<{dtype}[{config.tile_m},{config.tile_k}]>",
        "b_map": f"tensordesc<{dtype}[{config.tile_n},{config.tile_k}]>",
        "c_map": f"tensordesc<{out}[{config.tile_m},{c_columns}]>",
        "c": f"*{out}",
        **dict.fromkeys(("ldc", "m", "n", "k"), "i32"),
        **dict.fromkeys(CONSTANTS, "constexpr"),
    }
    fields = config.to_dict() | {"group": GROUP}
    source = ASTSource(
        fn=persistent_gemm,
        signature=signature,
        constexprs={name: fields[name] for name in CONSTANTS},
    )
    options = {"num_warps": config.warps, "num_stages": config.stages, "launch_pdl": True}
    return compile(source, target=GPUTarget("cuda", CAPABILITY, WARP), options=options)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: "-".join(map(str, c.to_dict().values())))
def test_a_configuration_multiplies_with_wgmma_and_fits_an_sm(config: TritonConfig) -> None:
    kernel = compiled(config, "bf16", "bf16")
    assert "wgmma.mma_async" in kernel.asm["ptx"]
    assert "cp.async.bulk.tensor.2d.global" in kernel.asm["ptx"]
    assert "st.local" not in kernel.asm["ptx"]
    assert ("setmaxnreg" in kernel.asm["ptx"]) == config.specialised
    assert kernel.metadata.shared <= load_profile("h200").limit("smem_per_block_bytes")


def test_it_compiles_for_other_types() -> None:
    kernel = compiled(CONFIGS[0], "fp16", "fp32")
    assert ".f32.f16.f16" in kernel.asm["ptx"]


def test_no_configuration_is_there_twice() -> None:
    assert len(set(CONFIGS)) == len(CONFIGS)
