"""Configurations of norm_activation as columns of integers, so that rules are worked out of all of
them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from solver.elementwise import is_any
from solver.families.norm_activation import FIELDS, WORDS, Fields, NormConfig

Columns = Mapping[str, Any]
"""Integer arrays of shape [R] by their fields' names, words by their place in WORDS."""


class NormColumns(Fields):
    """R configurations: each field an integer array of shape [R]."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def __getattr__(self, field: str) -> Any:
        return self._columns[field]

    def is_one_of(self, field: str, *words: str) -> Any:
        """Whether a field is one of these words. Shape [R]."""
        return is_any(self._columns[field], [WORDS[field].index(word) for word in words])


def columns_of(configs: Sequence[NormConfig]) -> dict[str, Any]:
    """Configurations as columns."""
    columns = {}
    for name in FIELDS:
        values = [getattr(config, name) for config in configs]
        if name in WORDS:
            places = {word: place for place, word in enumerate(WORDS[name])}
            values = [places[word] for word in values]
        columns[name] = np.array(values, dtype=np.int64)
    return columns
