"""`warpwright keys`, on the service's database."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from app.keys import Scope, digest_of, new_id, new_secret, read
from app.store.database import Database
from app.store.keys import KeyStore

ADMIN = ("create", "a", "--scope", "admin")


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path / 'keys.db'}"
    monkeypatch.setenv("WARPWRIGHT_DATABASE", url)
    return url


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["keys", *words, "--json"]) == code
    body: dict[str, Any] = json.loads(capsys.readouterr().out)
    return body


def test_a_key_is_made_listed_and_revoked(
    capsys: pytest.CaptureFixture[str], database: str
) -> None:
    limits = ("--requests-per-minute", "60", "--gpu-seconds-per-day", "90.5", "--expires", "30")
    made = run(capsys, "create", "team a", "--scope", "verify", "--scope", "optimize", *limits)
    parts = read(made.pop("key"))
    assert parts is not None
    assert parts[0] == made["id"]
    assert made["scopes"] == ["optimize", "verify"]
    assert (made["requests_per_minute"], made["gpu_seconds_per_day"]) == (60, 90.5)
    assert made["created_at"] < made["expires_at"]
    assert run(capsys, "list") == {"keys": [made]}
    revoked = run(capsys, "revoke", made["id"])
    assert revoked["state"] == "revoked"
    assert run(capsys, "revoke", made["id"]) == revoked
    assert run(capsys, "list") == {"keys": [revoked]}


def test_a_key_may_have_the_whole_day_of_several_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    made = run(capsys, *ADMIN, "--gpu-seconds-per-day", str(8 * 86_400))
    assert made["gpu_seconds_per_day"] == 8 * 86_400


def test_the_database_has_no_secret(capsys: pytest.CaptureFixture[str], database: str) -> None:
    text = run(capsys, *ADMIN)["key"]
    parts = read(text)
    assert parts is not None
    file = Path(database.removeprefix("sqlite:///"))
    stored = b"".join(part.read_bytes() for part in file.parent.glob("keys.db*"))
    assert parts[1].encode() not in stored
    assert digest_of(parts[1]).encode() in stored


def test_a_person_sees_the_key_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "create", "[red]a", "--scope", "optimize"]) == 0
    text = capsys.readouterr().out.split()[-1]
    parts = read(text)
    assert parts is not None
    assert main(["keys", "list"]) == 0
    shown = capsys.readouterr().out
    assert parts[0] in shown
    assert parts[1] not in shown
    assert "[red]a" in shown
    assert main(["keys", "revoke", parts[0]]) == 0
    assert "revoked" in capsys.readouterr().out


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_database_is_named_on_standard_error_alone(
    capsys: pytest.CaptureFixture[str], database: str, more: list[str]
) -> None:
    key = run(capsys, *ADMIN)
    for words in (ADMIN, ("list",), ("revoke", key["id"])):
        assert main(["keys", *words, *more]) == 0
        captured = capsys.readouterr()
        assert captured.err == f"database: {database}\n"
        assert database not in captured.out


def test_a_database_that_does_not_answer_is_named_without_its_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPWRIGHT_DATABASE", "postgresql://me:hush@127.0.0.1:1/none")
    assert main(["keys", "list"]) == 3
    said = capsys.readouterr().err
    assert "me:***@127.0.0.1:1/none" in said.splitlines()[0]
    assert "hush" not in said


def test_the_help_says_what_each_limit_means_and_what_holds_without_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["keys", "create", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.partition("options:")[2].split())
    options = text.split(" --")[1:]
    for option in options:
        name = option.split()[0]
        if name not in ("help", "json"):
            assert "default: " in option or "required" in option, name
    assert all(f"{scope}, " in text for scope in Scope)
    assert "WARPWRIGHT_DATABASE" in text


def test_keys_differ() -> None:
    assert len({new_secret() for _ in range(100)}) == 100
    assert len(new_secret()) * 4 == 256
    assert len({new_id() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("create", "a", "--scope", "root"), "scope"),
        (("create", " ", "--scope", "admin"), "name"),
        (("create", "a\nb", "--scope", "admin"), "name"),
        (("create", "a" * 101, "--scope", "admin"), "name"),
        ((*ADMIN, "--expires", "0"), "expires"),
        ((*ADMIN, "--requests-per-minute", "0"), "requests_per_minute"),
        ((*ADMIN, "--gpu-seconds-per-day", "-1"), "gpu_seconds_per_day"),
        (
            (*ADMIN, "--gpu-seconds-per-day", "nan"),
            "gpu_seconds_per_day",
        ),
        (("create", "a"), "arguments"),
        (("revoke", "0" * 12), "id"),
    ],
)
def test_what_is_wrong_is_named(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], field: str
) -> None:
    run(capsys, *ADMIN)  # there is a database
    assert run(capsys, *words, code=2)["errors"][0]["field"] == field


def test_a_database_that_can_not_be_opened_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPWRIGHT_DATABASE", "sqlite:////proc/none/keys.db")
    assert run(capsys, *ADMIN, code=3)["type"] == "urn:warpwright:problem:environment"


def test_more_keys_than_a_service_can_hold_are_refused(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.store.keys.ACTIVE_MAX", 2)
    first = run(capsys, *ADMIN)
    run(capsys, "create", "b", "--scope", "admin")
    assert "at most 2 valid keys" in run(capsys, *ADMIN, code=2)["detail"]
    run(capsys, "revoke", first["id"])
    run(capsys, *ADMIN)


def test_a_service_knows_ended_keys_for_a_day(database: str) -> None:
    opened = Database(database)
    opened.open()
    store = KeyStore(opened)
    recent, _ = store.create("a", frozenset({Scope.ADMIN}), lifetime=timedelta(hours=-1))
    store.create("b", frozenset({Scope.ADMIN}), lifetime=timedelta(hours=-25))
    valid, _ = store.create("c", frozenset({Scope.ADMIN}))
    assert set(store.known()) == {recent.id, valid.id}
    opened.close()


@pytest.mark.parametrize("words", [["list"], ["revoke", "0123456789ab"]])
def test_only_a_new_key_makes_a_database(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WARPWRIGHT_DATABASE", f"sqlite:///{tmp_path}/none/mistyped.db")
    assert main(["keys", *words]) == 3
    assert "there is no database" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
