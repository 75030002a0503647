"""What was measured of ``kernels.gemm``, in words."""

from __future__ import annotations

from typing import Any

from bench.gemm_page import gemm_part

RECORD: dict[str, Any] = {
    "device": "NVIDIA H200",
    "driver": "580",
    "date": "2026-12-01T05:08:06+00:00",
    "commit": "0123456789abcdef",
    "overhead": [
        {"library": "cupy", "bare_us": 5.29, "gemm_us": 9.87, "new_out_us": 23.7, "over_us": 4.58},
        {
            "library": "torch",
            "bare_us": 4.17,
            "gemm_us": 7.66,
            "new_out_us": 12.8,
            "torch_us": 12.18,
            "over_us": 3.49,
        },
    ],
    "at_once": [{"library": "cupy", "calls": 400, "wrong": 3}],
    "beside_torch": [
        {"m": 1, "n": 8, "k": 64, "torch_over_gemm": 2.0, "wrong": 0},
        {"m": 1, "n": 16, "k": 64, "torch_over_gemm": 0.5, "wrong": 7},
        {"m": 4096, "n": 8, "k": 64, "torch_over_gemm": 1.25, "wrong": 0},
    ],
    "failures": [],
}


def test_costs_ratios_and_wrong_products_are_told() -> None:
    part = gemm_part(RECORD)
    assert "| cupy | 5.3 | 9.9 | 4.6 | 23.7 | - |" in part
    assert "| torch | 4.2 | 7.7 | 3.5 | 12.8 | 12.2 |" in part
    assert "400 products, 3 wrong." in part
    assert "3 products in turns" in part
    assert "; 7 wrong elements" in part
    assert "| all | 3 | 1.077 | 0.500 | 2.000 |" in part
    assert "| 1 | 2 | 1.000 | 0.500 | 2.000 |" in part
    assert "| 4,096 | 1 | 1.250 | 1.250 | 1.250 |" in part
    assert "Every step came to its end." in part


def test_what_failed_and_what_was_not_run_is_said() -> None:
    failed = {"step": "at_once", "arguments": ["torch", 20], "why": "timeout: 120 s"}
    assert "**Failed**: at_once ['torch', 20]: timeout" in gemm_part(
        RECORD | {"failures": [failed]}
    )
    assert "`bench.gpu_gemm`: not run." in gemm_part(None)
