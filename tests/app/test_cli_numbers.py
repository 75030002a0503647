"""Every option that takes a number says what it allows and what it was given."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import build_parser, main
from solver.problem import OUT_BYTES

CONFIG = {"family": "sm90_gemm", "tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 4}
NEEDED = {
    "--op": "norm_activation",
    "--config": json.dumps(CONFIG),
    "--out": "out",
    "file": "file",
    "name": "me",
    "--scope": "optimize",
}


DECIMAL = ("divergence", "gpu_seconds_per_day")  # the others are integers


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("app.host", "kernels.verify"):
        monkeypatch.setattr(f"{module}.host_gpu", lambda: None)


def commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[argparse.Action]]]:
    """The words and the arguments of every command there is."""
    actions = parser._actions
    below = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        for name, each in action.choices.items():
            yield from commands(each, (*words, name))
    if not below:
        yield words, actions


def is_number(action: argparse.Action) -> bool:
    return action.type not in (None, str, Path) and action.dest != "op"


def choices_of(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """The words of commands that need one of several options, and the first of these."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                yield from choices_of(each, (*words, name))
    for group in parser._mutually_exclusive_groups:
        if group.required:
            yield words, group._group_actions[0].option_strings[0]


COMMANDS = dict(commands(build_parser()))
OF_ROWS = ["--op=norm_activation", "--rows=8", "--width=8", "--activation=poly"]
CHOSEN = {words: [option] for words, option in choices_of(build_parser())} | {
    ("advise",): OF_ROWS,
    ("profile",): OF_ROWS,
}
"""Of these two, numbers go with this choice alone, and they need some; of an option given twice the
second counts."""
NUMBERS = [(w, a.dest) for w, actions in COMMANDS.items() for a in actions if is_number(a)]
numbers = pytest.mark.parametrize(
    ("words", "dest"), NUMBERS, ids=lambda part: part if isinstance(part, str) else "-".join(part)
)


def asked(words: tuple[str, ...], dest: str, value: str) -> list[str]:
    """A command line that is right but for the value of one argument."""
    if words in (("optimize",), ("verify",)) and dest in ("rows", "width", "degree"):
        return [*words, *OF_ROWS, f"--{dest}={value}"]
    line, given = [*words, *CHOSEN.get(words, [])], []
    for action in COMMANDS[words]:
        mine = action.dest == dest
        if not action.option_strings:
            other = "8" if is_number(action) else NEEDED[action.dest]
            given.append(value if mine else other)
        elif mine or action.required:
            name = action.option_strings[0]
            line.append(f"{name}={value if mine else NEEDED[name]}")
    return [*line, *given]


def refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[str, str]:
    """Field and message of the one error that a command line is."""
    code = main([*words, "--json"])
    body: Any = json.loads(capsys.readouterr().out)
    assert code == 2, body
    (error,) = body["errors"]
    return error["field"], error["message"]


@numbers
@pytest.mark.parametrize("value", ["-1", "99999999999", "9" * 5000])
def test_a_number_out_of_range_is_told_the_range_and_not_that_it_is_none(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], dest: str, value: str
) -> None:
    field, message = refused(capsys, asked(words, dest, value))
    assert field == dest
    assert message.startswith("must be between ")
    assert " and " in message
    given = message.partition(", got ")[2]
    assert given
    assert dest in DECIMAL or value.startswith(given.rstrip("…"))
    assert len(message) < 200


@numbers
@pytest.mark.parametrize("value", ["x", "", "0x8", "x" * 5000])
def test_what_is_no_number_is_told_so_and_the_range(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], dest: str, value: str
) -> None:
    field, message = refused(capsys, asked(words, dest, value))
    assert field == dest
    kind = "a number" if dest in DECIMAL else "an integer"
    assert message.startswith(f"must be {kind} between ")
    assert f", got '{value[:50]}" in message
    assert len(message) < 200


@pytest.mark.parametrize("value", ["8.0", "1e3", "nan", "1_0", "٨"])
@pytest.mark.parametrize("option", ["--lda", "--c-offset", "--top-k", "--time-limit-ms"])
def test_what_is_no_decimal_integer_is_told_so(
    capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    field, message = refused(capsys, ["optimize", "8", "8", "8", option, value])
    assert field == option[2:].replace("-", "_")
    assert message.startswith("must be an integer between ")
    assert message.endswith(f", got '{value}'")


def test_zeros_in_front_make_no_integer_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimize", "8", "8", "8", "--top-k", "0" * 30 + "65"]
    assert refused(capsys, words) == ("top_k", "must be between 1 and 64, got 65")


@pytest.mark.parametrize(("out_dtype", "size"), OUT_BYTES.items())
def test_the_offset_of_c_is_bounded_by_its_type(
    capsys: pytest.CaptureFixture[str], out_dtype: str, size: int
) -> None:
    words = ["optimize", "8", "8", "8", "--out-dtype", out_dtype, "--c-offset", "9"]
    most = 16 // size - 1
    assert refused(capsys, words) == ("c_offset", f"must be between 0 and {most}, got 9")


def test_every_command_with_numbers_is_walked() -> None:
    found = {dest for _, dest in NUMBERS}
    assert {"m", "lda", "c_offset", "top_k", "deadline", "port", "seed", "divergence"} <= found
    assert len({words for words, _ in NUMBERS}) > 8
