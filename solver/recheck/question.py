"""The question in a certificate: whether it is one, and in canonical form; then its parts.

``question_faults`` says why a document asks nothing that could be answered; of a document
without faults ``read_question`` makes a Question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from solver.recheck.members import choice_faults, inside, integer_faults, object_faults, shown
from solver.recheck.problem import ELEMENT_BYTES, Operand, operands, problem_faults
from solver.recheck.shipped import profile_names, read_profile

FAMILY_OF = {"calibrated": "sm90_gemm", "paper": "paper"}
DIVERGENCE_MAX = 32
TOP_K_MAX = 64
BOUND_MAX = 2**31 - 1
BOUND_VALUES_MAX = 64
WITHIN_MAX = 100
CAP_MAX = 256
WEIGHT_MIN, WEIGHT_MAX = 1e-9, 1e9

TIES = ("time", "wait", "smem", "registers")
"""Values that break ties, in that order; energy counts where it is named."""
VALUES = (*TIES, "energy")
UNIT_NAMES = {
    "time": "µs",
    "wait": "µs",
    "smem": "KiB",
    "registers": "registers per thread",
    "energy": "mJ",
}
CONFIG_FIELDS = (
    "tile_m",
    "tile_n",
    "tile_k",
    "stages",
    "mma_in_flight",
    "dma_warps",
    "math_warpgroups",
    "register_split",
    "cluster_m",
    "cluster_n",
    "split_k",
    "raster_group",
)
"""A configuration's integer fields in their order, the last tie-break."""
RESOURCES = ("smem_bytes", "registers_per_thread", "sms", "power_w")
RELATIONS = {"power_w": ("max",)}
"""Of resources that do not take all of min, max and in."""
KINDS = {
    "lexicographic": ("kind", "order"),
    "weighted": ("kind", "weights", "units"),
    "pareto": ("kind", "axes", "within", "cap"),
}


@dataclass(frozen=True, slots=True)
class Bound:
    """What a variable may be: from ``least`` to ``most``, and one of ``values`` if any."""

    least: int
    most: int
    values: frozenset[int]

    def allows(self, value: int) -> bool:
        """Whether ``value`` satisfies it."""
        return self.least <= value <= self.most and (not self.values or value in self.values)


@dataclass(frozen=True, slots=True)
class Objective:
    """What is ranked by: ``names`` of VALUES in order; ``weights`` beside them where weighted.

    A front has ``names`` for axes, a time limit ``within`` times the least, and at most
    ``cap`` points listed.
    """

    kind: str
    names: tuple[str, ...]
    weights: tuple[Fraction, ...] = ()
    within: Fraction = Fraction(1)
    cap: int = 1

    @property
    def counts_energy(self) -> bool:
        """Whether it names energy."""
        return "energy" in self.names


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A question without faults. ``bounds`` by variable: RESOURCES, or ``config.`` and a field."""

    m: int
    n: int
    k: int
    dtype: str
    out_dtype: str
    a_runs_along_k: bool
    b_runs_along_k: bool
    a: Operand
    b: Operand
    c: Operand
    model: str
    cold: bool
    divergence: float
    device: str
    top_k: int
    objective: Objective
    bounds: Mapping[str, Bound]

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of A and B."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def kernel_layout(self) -> str:
        """The layout of the kernel that reads A and B as they run."""
        return ("t" if self.a_runs_along_k else "n") + ("n" if self.b_runs_along_k else "t")


def question_faults(document: dict[str, Any]) -> Iterator[str]:
    """Each reason why the members that ask are not a question in canonical form."""
    model = document["model"]
    yield from choice_faults("model", model, FAMILY_OF)
    is_paper = model == "paper"
    yield from problem_faults(document["problem"], is_paper)
    yield from choice_faults(
        "cache", document["cache"], ("cold",) if is_paper else ("cold", "warm")
    )
    yield from _divergence_faults(document["divergence"], is_paper)
    yield from _device_faults(document["device"], model)
    yield from _objective_faults(document["objective"])
    yield from _constraint_faults(document["constraints"], is_paper)
    objective = document["objective"]
    one_answer = type(objective) is dict and objective.get("kind") == "pareto"
    yield from integer_faults("top_k", document["top_k"], 1, 1 if one_answer else TOP_K_MAX)


def _divergence_faults(divergence: Any, is_paper: bool) -> Iterator[str]:
    most = DIVERGENCE_MAX if is_paper else 1
    if type(divergence) not in (int, float) or not 1 <= divergence <= most:
        yield f"divergence must be a number from 1 to {most}, got {shown(divergence)}"


def _device_faults(device: Any, model: Any) -> Iterator[str]:
    faults = list(object_faults("device", device, ("name", "profile_sha256")))
    if not faults:
        faults += choice_faults("device.name", device["name"], profile_names())
    yield from faults
    if faults or model not in ("calibrated", "paper"):
        return
    profile, family = read_profile(device["name"]), FAMILY_OF[model]
    if family not in profile.models or (model == "calibrated" and family not in profile.families):
        yield f"device.name must be a device with constants for model {model}"


def _objective_faults(objective: Any) -> Iterator[str]:
    if type(objective) is not dict or "kind" not in objective:
        yield f"objective must be an object with a kind, got {shown(objective)}"
        return
    kind = objective["kind"]
    faults = list(choice_faults("objective.kind", kind, KINDS))
    if not faults:
        faults += object_faults("objective", objective, KINDS[kind])
    yield from faults
    if faults:
        return
    if kind == "lexicographic":
        yield from _name_faults("objective.order", objective["order"])
    elif kind == "weighted":
        yield from _weight_faults(objective["weights"], objective["units"])
    else:
        yield from _name_faults("objective.axes", objective["axes"])
        within = objective["within"]
        if type(within) not in (int, float) or not 1 <= within <= WITHIN_MAX:
            yield f"objective.within must be a number from 1 to {WITHIN_MAX}, got {shown(within)}"
        yield from integer_faults("objective.cap", objective["cap"], 1, CAP_MAX)


def _name_faults(path: str, names: Any) -> Iterator[str]:
    if type(names) is not list or not names:
        yield f"{path} must be a list of one or more of {', '.join(VALUES)}, got {shown(names)}"
        return
    for i, name in enumerate(names):
        yield from choice_faults(f"{path}[{i}]", name, VALUES)
        if name in names[:i]:
            yield f"{path}[{i}] must not repeat {shown(name)}"


def _weight_faults(weights: Any, units: Any) -> Iterator[str]:
    faults = list(object_faults("objective.weights", weights, (), VALUES))
    yield from faults
    if faults:
        return
    for name, weight in weights.items():
        if type(weight) not in (int, float) or not (
            weight == 0 or WEIGHT_MIN <= weight <= WEIGHT_MAX
        ):
            yield (
                f"objective.weights.{name} must be 0 or a number from {WEIGHT_MIN:g} to "
                f"{WEIGHT_MAX:g}, got {shown(weight)}"
            )
    if not any(weights.values()):
        yield "objective.weights must have one that is greater than 0"
    faults = list(object_faults("objective.units", units, weights))
    yield from faults
    if not faults:
        for name, unit in units.items():
            if unit != UNIT_NAMES[name]:
                yield f"objective.units.{name} must be {UNIT_NAMES[name]!r}, got {shown(unit)}"


def _constraint_faults(constraints: Any, is_paper: bool) -> Iterator[str]:
    faults = list(object_faults("constraints", constraints, (), (*RESOURCES, "config")))
    yield from faults
    if type(constraints) is not dict:
        return
    for name in ("registers_per_thread", "power_w"):
        if is_paper and name in constraints:
            yield f"constraints.{name} must be left out in model paper"
    for name in RESOURCES:
        if name in constraints:
            relations = RELATIONS.get(name, ("min", "max", "in"))
            yield from _bound_faults(f"constraints.{name}", constraints[name], relations)
    config = constraints.get("config", {})
    yield from object_faults("constraints.config", config, (), CONFIG_FIELDS)
    if type(config) is dict:
        for name, bound in config.items():
            yield from _bound_faults(inside("constraints.config", name), bound)
        if "config" in constraints and not config:
            yield "constraints.config must be left out where it bounds nothing"


def _bound_faults(
    path: str, bound: Any, relations: tuple[str, ...] = ("min", "max", "in")
) -> Iterator[str]:
    faults = list(object_faults(path, bound, (), relations))
    yield from faults
    if type(bound) is not dict:
        return
    if not bound:
        yield f"{path} must have at least one of {', '.join(relations)}"
    for relation in ("min", "max"):
        if relation in bound:
            yield from integer_faults(f"{path}.{relation}", bound[relation], 0, BOUND_MAX)
    if "in" not in bound:
        return
    values = bound["in"]
    if type(values) is not list or not 1 <= len(values) <= BOUND_VALUES_MAX:
        yield f"{path}.in must be a list of 1 to {BOUND_VALUES_MAX} integers, got {shown(values)}"
        return
    faults = []
    for i, value in enumerate(values):
        faults += integer_faults(f"{path}.in[{i}]", value, 0, BOUND_MAX)
    yield from faults
    if not faults and values != sorted(set(values)):
        yield f"{path}.in must be sorted, each value once"


def read_question(document: dict[str, Any]) -> Question:
    """The question of a document in which ``question_faults`` finds none."""
    problem, constraints = document["problem"], document["constraints"]
    bounds = {name: constraints[name] for name in RESOURCES if name in constraints}
    bounds |= {f"config.{name}": bound for name, bound in constraints.get("config", {}).items()}
    return Question(
        m=problem["m"],
        n=problem["n"],
        k=problem["k"],
        dtype=problem["dtype"],
        out_dtype=problem["out_dtype"],
        **operands(problem),
        model=document["model"],
        cold=document["cache"] == "cold",
        divergence=document["divergence"],
        device=document["device"]["name"],
        top_k=document["top_k"],
        objective=_read_objective(document["objective"]),
        bounds={
            name: Bound(
                bound.get("min", 0), bound.get("max", BOUND_MAX), frozenset(bound.get("in", ()))
            )
            for name, bound in bounds.items()
        },
    )


def _read_objective(raw: dict[str, Any]) -> Objective:
    if raw["kind"] == "lexicographic":
        return Objective("lexicographic", tuple(raw["order"]))
    if raw["kind"] == "weighted":
        weights = raw["weights"]
        exact = tuple(_exact(weight) for weight in weights.values())
        return Objective("weighted", tuple(weights), exact)
    return Objective("pareto", tuple(raw["axes"]), within=_exact(raw["within"]), cap=raw["cap"])


def _exact(number: float) -> Fraction:
    """A number as the decimal that Python prints for it."""
    return Fraction(repr(number))
