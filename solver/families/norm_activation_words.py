"""Problems and configurations of norm_activation in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from solver.families.norm_activation import NormConfig, NormProblem


def problem_words(problem: NormProblem) -> str:
    """A problem in a phrase."""
    degree = f" of degree {problem.degree}" if problem.activation == "poly" else ""
    return (
        f"{problem.norm} norm and {problem.activation}{degree} of {problem.rows} rows of "
        f"{problem.width} in {problem.dtype}"
    )


def config_words(config: Mapping[str, Any]) -> str:
    """A configuration in one line, what is at its default left out."""
    usual = {field.name: field.default for field in fields(NormConfig)}
    return " ".join(
        [config["kind"]]
        + [
            f"{name}={value}"
            for name, value in config.items()
            if name != "kind" and value != usual[name]
        ]
    )
