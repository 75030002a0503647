"""Kinds of kernels in an answer, for a person at a terminal."""

from __future__ import annotations

from typing import Any

from app.cli.layout import Body
from app.ops import OPS


def kind_rows(body: Body) -> list[tuple[str, Any]]:
    """The answer's kind, the best of every kind beside it, and what specialising is worth; nothing
    of an op that has no kinds."""
    if "kinds" not in body:
        return []
    blocks = body["resident_blocks"]
    of = "an SM holds one block" if blocks == 1 else f"an SM holds {blocks} blocks"
    divided = "" if body["ratio"] is None else f", {body['ratio']} producers : consumers"
    words = OPS[body["op"]].config_words
    return [
        ("kind", f"{body['kind']}{divided}; {of}"),
        *(
            (
                f"  best {name}",
                "none is legal"
                if each is None
                else f"{each['time_us']:.2f} µs, {each['over_answer']:.3f} of the answer's: "
                f"{words(each['config'])}",
            )
            for name, each in body["kinds"].items()
        ),
        ("specialising", body["specialising"]),
    ]
