"""The example that ships holds to the present model."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli.main import main
from app.picks.check import Asked, check, solve_all
from app.picks.file import read_picks
from app.picks.lock import read_lock
from app.picks.step import Status

PATH = Path(__file__).parents[3] / "examples" / "ci" / "picks.toml"
REMAKE = "warpwright lock examples/ci/picks.toml"


def test_the_examples_lock_is_that_of_this_model() -> None:
    picks = read_picks(PATH)
    lock = read_lock(picks.path, picks.lock_path)
    asked = Asked(static=False, runner=None, jobs=1, began_s=0.0)
    solved = solve_all(picks, asked, lambda done, total: None)
    report = check(picks, lock, solved, asked, lambda done, total: None)
    assert report.status is Status.HOLDS, (
        f"{report.verdict}\nWhere that is meant, `{REMAKE}` remakes the lock; its diff belongs to "
        "the change of the model."
    )
    assert len(report.picks) == 20
    assert all(pick.config.stages >= 2 for pick in lock.picks)


def test_one_of_the_example_passes_all_that_needs_no_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, *problems = PATH.read_text("utf-8").split("[[problems]]")
    path = tmp_path / "picks.toml"
    path.write_text(f"{head}[[problems]]{problems[17]}", "utf-8")
    assert main(["lock", str(path), "--jobs", "1"]) == 0
    assert main(["check", str(path), "--static", "--jobs", "1"]) == 0
    assert "1 of 1 picks hold" in capsys.readouterr().out
