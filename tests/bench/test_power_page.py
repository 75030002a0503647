"""What was measured of power and energy, in words."""

from __future__ import annotations

from typing import Any

from bench.power_page import power_part
from solver.device import load_profile

PART = {
    "rows": 2,
    "power": {"mean_ape": 0.042, "p95_ape": 0.115, "max_ape": 0.231},
    "energy": {"mean_ape": 0.058, "p95_ape": 0.16, "max_ape": 0.283},
}
NOTHING: dict[str, Any] = {"rows": 0, "power": None, "energy": None}


def question(weighted: str, capped: str) -> dict[str, Any]:
    return {
        "m": 1,
        "n": 2112,
        "k": 7168,
        "cap_w": 564,
        "measured": {"pick": {}},
        "weighted": {
            "score_ratio_to_pick": {"ratio": 0.949, "low": 0.936, "high": 0.955},
            "verdict": weighted,
        },
        "capped": {"power_w": 601.1, "power_low_w": 586.3, "power_high_w": 602, "verdict": capped},
    }


def test_errors_and_what_held_are_told() -> None:
    held = {
        "profile": "h200",
        "plan_profile_sha256": load_profile("h200").sha256,
        "rows": [question("holds", "fails"), question("undecided", "holds"), {"details": "broke"}],
    }
    part = power_part({"fitted": NOTHING, "held_out": PART}, held)
    assert "| held out | 2 | 4.2% | 11.5% | 23.1% | 5.8% | 16.0% | 28.3% |" in part
    assert "| fitted |" not in part
    assert "Of 2 questions 1 weighted answers" in part
    assert "and 1 under a cap" in part
    assert "| 7168 | 0.949 | 0.936 | 0.955 | holds | 564 | 601 | 586 | 602 | fails |" in part
    assert "earlier profile" not in part
    assert "earlier profile" in power_part(None, held | {"plan_profile_sha256": "another"})


def test_what_was_not_run_is_said() -> None:
    part = power_part(None, None)
    assert "`bench.power_fit`: not run." in part
    assert "`kernels.power --answers`: not run." in part
