"""What the Hopper family draws where launches follow one another for seconds (docs/energy.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from solver.recheck.shipped import Profile
from solver.recheck.space import PER_MILLE, TICKS_PER_US

TABLE = "sm90_gemm_power"
CLOCK_STEPS = 3
LEAST_LEFT_W = 1.0


@dataclass(frozen=True, slots=True)
class Activity:
    """What a launch does, at the SM clock that it is priced at: SMs that have a CTA; for how many
    µs the tensor cores, load paths, L2 and memory of the device would be at work at full rate and,
    but for memory, at the clock ``rated_ghz``; µs of copies, of the k-iterations at a clock in GHz,
    and of all else."""

    rated_ghz: float
    clock_ghz: float
    active: int
    tensor: float
    load: float
    l2: float
    memory: float
    copied_us: float
    steady_us: Callable[[float], float]
    other_us: float


def sustained_power(profile: Profile, work: Activity) -> Mapping[str, int]:
    """A work's power, or nothing where the profile has no constants for it."""
    constant = profile.models.get(TABLE)
    if constant is None:
        return {}
    idle_w = constant["power_static_w"] + constant["power_sm_w"] * work.active
    exponent = constant["power_voltage_exponent"]
    by_clock = (
        constant["power_tensor_w"] * work.tensor
        + constant["power_load_w"] * work.load
        + constant["power_l2_w"] * work.l2
    )
    unclocked = constant["power_memory_w"] * (work.memory + work.copied_us)

    def work_uj(ghz: float) -> float:
        slower: float = (ghz / work.rated_ghz) ** exponent
        return by_clock * slower + unclocked

    def launch_us(ghz: float) -> float:
        return work.steady_us(ghz) + work.other_us

    left_w = max(constant["power_limit_w"] - idle_w, LEAST_LEFT_W)
    held_ghz = work.clock_ghz
    for _ in range(CLOCK_STEPS):
        asked_w = work_uj(held_ghz) / launch_us(held_ghz)
        held_ghz *= min(1.0, left_w / asked_w) ** (1 / (1 + exponent))
    slowdown = launch_us(held_ghz) / launch_us(work.clock_ghz)
    return {
        "power_static": round(idle_w * slowdown),
        "power_dynamic": round(work_uj(held_ghz) * TICKS_PER_US),
        "power_slowdown": round(slowdown * PER_MILLE),
        "power_clock_mhz": round(held_ghz * 1e3),
        "power_high": round((1 + constant["power_margin"]) * PER_MILLE),
        "power_limit": round(constant["power_limit_w"]),
    }
