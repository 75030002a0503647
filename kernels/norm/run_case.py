"""What a GPU process is asked to launch and check; imports no CUDA."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from solver.families.norm_activation import NormConfig, NormProblem


@dataclass(slots=True)
class Case:
    """One call of ``kernels.norm.run.check_launch``, with its keyword arguments."""

    problem: NormProblem
    config: NormConfig
    options: dict[str, Any] = field(default_factory=dict)
