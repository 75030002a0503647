"""What a configuration has that others' settings have not."""

from __future__ import annotations

from dataclasses import fields

from solver.config import Config

DEFAULTS = {field.name: field.default for field in fields(Config)}

OWN = {
    "mma_in_flight": "mma_in_flight: the other kernel decides itself when a slot of its ring comes "
    "back",
    "dma_warps": "dma_warps: the other kernel has as many warps that load as it has",
    "register_split": "register_split: the other kernel or its compiler shares out registers",
}
"""Of each field that is ours alone, why it is not said."""


def own_fields(config: Config) -> list[str]:
    """What can't be said of fields that no other kernel has."""
    return [words for name, words in OWN.items() if getattr(config, name) != DEFAULTS[name]]
