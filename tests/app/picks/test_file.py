"""Picks files: what is taken, and what a wrong one is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.cli.main import main
from app.picks.file import read_picks
from app.schemas.picks import PicksRequest, Tolerances
from solver.errors import InvalidInput
from tests.app.picks.tools import PICKS, scratch

ONE = 'device = "h200"\n[[problems]]\nm = 8\nn = 8\nk = 8\n'
DOCS = Path(__file__).parents[3] / "docs"


def test_a_problem_has_the_files_members_but_for_its_own(tmp_path: Path) -> None:
    text = """
device = "h200"
dtype = "fp16"
cache = "warm"
constraints = { smem_bytes = { max = 98304 } }
objective = { kind = "weighted", weights = { time = 1 } }

[[problems]]
m = 8
n = 8
k = 8

[[problems]]
m = 8
n = 8
k = 8
dtype = "bf16"
cache = "cold"
constraints = {}
"""
    first, second = read_picks(scratch(tmp_path, text)).picks
    assert first.name == "8 x 8 x 8 in fp16 (tn), warm"
    assert first.question.constraints.to_dict() == {"smem_bytes": {"max": 98304}}
    assert first.question.cache == "warm"
    assert second.name == "8 x 8 x 8 in bf16 (tn)"
    assert second.question.constraints.bounds == ()
    assert second.question.objective == first.question.objective
    assert (first.question.proof, first.question.device) == ("full", "h200")


def test_a_lock_lies_beside_its_picks_file(tmp_path: Path) -> None:
    picks = read_picks(scratch(tmp_path))
    assert picks.lock_path == tmp_path / "picks.lock.json"
    assert picks.tolerances.top_k == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "device: is required and must be one of h100_sxm, h20, h200"),
        ('device = "h200"', "problems: is required and must be a list of 1 to 1000 tables"),
        ('device = "h200"\nproblems = []', "must be a list of 1 to 1000 tables, got list []"),
        (ONE.replace("h200", "a6000"), "device: must be one of h100_sxm, h20, h200, h200_datash"),
        (ONE.replace("h200", "none"), "got 'none'"),
        ("device = h200", "is no TOML: Invalid value (at line 1, column 10)"),
        (ONE + "m = 8\n", "is no TOML: Cannot overwrite a value (at line 6"),
        (ONE.replace("m = 8", "m = 0"), "problems.0.m: must be between 1 and 2147483647"),
        (ONE.replace("m = 8", "m = 8.0"), "problems.0.m: must be an integer between 1 and"),
        (ONE.replace("m = 8", "m = true"), "problems.0.m: must be an integer between 1 and"),
        (ONE.replace("m = 8", "m = 2026-01-01"), "problems.0.m: must be an integer between 1"),
        (ONE.replace("m = 8\n", ""), "problems.0.m: is required and must be an integer"),
        (ONE.replace("m = 8", "m = " + "9" * 5000), "is no TOML"),
        (ONE + "lda = 7\n", "problems.0.lda: "),
        (ONE + "M = 8\n", "problems.0.M: is no field of a picks file; there are m, n, k, dtype"),
        ("tolerance = 1\n" + ONE, "tolerance: is no field of a picks file; there are device, dt"),
        (ONE + "[tolerances]\ntime = -0.1\n", "tolerances.time: must be a number between 0 and 10"),
        (ONE + "[tolerances]\ntime = nan\n", "tolerances.time: must be a number between 0 and 10"),
        (ONE + "[tolerances]\ntop_k = 18\n", "tolerances.top_k: must be an integer between 2 an"),
        (ONE + "[tolerances]\nspeed = 1\n", "speed: is no field of a picks file; there are time, "),
        ('dtype = "fp64"\n' + ONE, "picks.toml: dtype: must be one of bf16, fp16, got 'fp64'"),
        (ONE + 'dtype = "fp64"\n', "problems.0.dtype: must be one of bf16, fp16, got 'fp64'"),
        (
            ONE + "constraints = { stages = { max = 3 } }\n",
            "problems.0.constraints.stages: is no field of a picks file; there are smem_bytes",
        ),
        (
            ONE + 'objective = { kind = "pareto", axes = ["time"] }\n',
            "problems.0.objective.kind: must be one of lexicographic, weighted",
        ),
        (ONE + 'name = ""\n', "problems.0.name: must be a string of 1 to 60 characters"),
        (ONE + 'name = "a\\nb"\n', "problems.0.name: must be printable"),
        (ONE + 'name = "\\u001b[31m"\n', "problems.0.name: must be printable"),
        (ONE + 'name = " a"\n', "problems.0.name: must be printable and have no space at its e"),
        (
            ONE + ONE.partition("\n")[2],
            "problems.1.name: must be there once, '8 x 8 x 8 in bf16 (tn)' is that of problems.0",
        ),
        ("a = " + "[" * 5000, "picks.toml: "),
    ],
)
def test_a_wrong_file_exits_2_and_names_itself_the_field_and_the_limit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, words: str
) -> None:
    path = scratch(tmp_path, text)
    for command in ("check", "lock"):
        assert main([command, str(path)]) == 2
        error = " ".join(capsys.readouterr().err.split())
        assert f"error: {path}: " in error
        assert words in error
    assert main(["check", str(path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["errors"][0]["field"] == str(path)


def test_every_wrong_field_is_named_up_to_some_number(tmp_path: Path) -> None:
    text = 'device = "h200"\n' + "[[problems]]\nm = 1.5\nn = 2\nk = 3\n" * 2
    with pytest.raises(InvalidInput, match=r"problems.0.m: .*; problems.1.m: "):
        read_picks(scratch(tmp_path, text))


def test_a_file_that_cant_be_read_is_told_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for path, words in (
        (tmp_path / "none.toml", "can't be read: No such file or directory"),
        (tmp_path, "can't be read: Is a directory"),
        (Path("a\0b"), "can't be read: "),
    ):
        assert main(["check", str(path)]) == 2
        assert words in " ".join(capsys.readouterr().err.split())
    path = tmp_path / "latin.toml"
    path.write_bytes(b'# a\n# \xe9\ndevice = "h200"')
    assert main(["check", str(path)]) == 2
    assert "line 2: must be UTF-8 text" in capsys.readouterr().err


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "picks.toml"
    path.write_bytes(b"\xef\xbb\xbf" + PICKS.encode())
    assert len(read_picks(path).picks) == 2


def test_the_picks_file_of_the_docs_is_one_and_they_name_every_field(tmp_path: Path) -> None:
    text = (DOCS / "ci.md").read_text("utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    picks = read_picks(scratch(tmp_path, example))
    assert [pick.name for pick in picks.picks] == ["attention output", "MLP down"]
    for name in PicksRequest.model_fields:
        assert f"`{name}`" in text or f"`{name}." in text, name
    for name in Tolerances.model_fields:
        assert f"| `tolerances.{name}` |" in text


def test_the_schema_in_docs_is_the_one_that_holds() -> None:
    """`python -m app.schemas.picks > docs/picks.schema.json` writes it."""
    assert json.loads((DOCS / "picks.schema.json").read_text()) == PicksRequest.model_json_schema()
