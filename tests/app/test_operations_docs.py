"""docs/keys.md, docs/operations.md and the settings' table say what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from fastapi.testclient import TestClient
from prometheus_client.metrics import MetricWrapperBase

from app.cli.main import main
from app.main import create_app
from app.metrics import REFUSALS
from app.settings import ELSEWHERE, PREFIX, Settings
from app.store.database import Database
from tests.app.key_tools import services_of
from tests.app.test_access import CLOSED, OPEN, TABLE

DOCS = Path(__file__).parents[2] / "docs"
DEPLOY = DOCS.parent / "deploy"
ALERTS = re.findall(r"expr: (.*)", (DEPLOY / "alerts.yml").read_text("utf-8"))
PANELS = [
    target["expr"]
    for panel in json.loads((DEPLOY / "grafana/dashboards/warpwright.json").read_text())["panels"]
    for target in panel["targets"]
]
OPERATIONS = (DOCS / "operations.md").read_text("utf-8")
KEYS = (DOCS / "keys.md").read_text("utf-8")
SETTINGS = (DOCS / "api.md").read_text("utf-8").partition("\n## Settings\n")[2]
SERIES = r"\b(?:warpwright|process)_[a-z_]+"


PAGES = [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
SHELL = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?(?:warpwright|python) ", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_written_one_way_and_the_page_says_what_puts_them_on_the_path(
    page: Path,
) -> None:
    text = page.read_text("utf-8")
    assert set(re.findall(r"\.venv/bin/\w+", text)) <= {".venv/bin/activate"}
    blocks = "".join(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL))
    if SHELL.search(blocks):
        assert ". .venv/bin/activate" in text


def families(client: TestClient) -> set[str]:
    """Names of the metrics that /metrics declares, counters with their ending."""
    declared = re.findall(r"# TYPE (\S+) (\S+)", client.get("/metrics").text)
    return {name for name, _ in declared}


def test_every_metric_is_in_the_table_and_no_other(client: TestClient) -> None:
    table = set(re.findall(r"^\| `(warpwright_\w+)`", OPERATIONS, re.MULTILINE))
    assert table == {name for name in families(client) if name.startswith("warpwright_")}


@pytest.mark.parametrize("expressions", [ALERTS, PANELS], ids=["alerts", "dashboard"])
def test_alerts_and_dashboard_are_about_metrics_that_there_are(
    expressions: list[str], client: TestClient
) -> None:
    named = {name for line in expressions for name in re.findall(SERIES, line)}
    assert len(expressions) > 5
    known = families(client)
    for name in named:
        assert name in known or name.removesuffix("_bucket") in known, name


def test_alerts_and_dashboard_are_about_labels_that_there_are(client: TestClient) -> None:
    registry = services_of(client).metrics.registry
    labels = {
        metric.name: set(collector._labelnames)
        for collector in list(registry._collector_to_names)
        if isinstance(collector, MetricWrapperBase)
        for metric in collector.describe()
    }
    expressions = "\n".join([*ALERTS, *PANELS])
    used = re.findall(r"(warpwright_\w+)\{(\w+)=", expressions)
    grouped = re.findall(r"by \(([^)]*)\) \(\w+\((warpwright_\w+)", expressions)
    used += [(name, label) for words, name in grouped for label in words.split(", ")]
    assert len(used) > 5
    for name, label in used:
        assert label == "le" or label in labels[re.sub("_(total|bucket)$", "", name)], name


def test_every_reason_of_a_refusal_is_named() -> None:
    source = "".join(
        (Path(__file__).parents[2] / "app" / name).read_text("utf-8")
        for name in ("api/key_guard.py", "quota.py")
    )
    row = next(line for line in OPERATIONS.splitlines() if "refused_requests_total" in line)
    reasons = re.findall(r'(?:_no_key\(|Refusal\(|refused\.labels\()"(\w+)"', source)
    assert set(reasons) == set(REFUSALS)
    assert set(reasons) <= set(re.findall(r"`(\w+)`", row))


def test_every_route_is_under_its_scope() -> None:
    rows = dict(re.findall(r"^\| (?:`(\w+)`|none needed) \| (.*) \|$", KEYS, re.MULTILINE))
    for path in {path for _, path in OPEN}:
        assert f"`{path}`" in rows[""]
    for method, path in CLOSED:
        row = rows[str(TABLE.scope_of(method, path))]
        assert f"`{path.partition('/{')[0]}`" in row, path


def test_every_setting_is_in_the_table_with_its_default() -> None:
    defaults = Settings()
    rows = dict(re.findall(r"^\| (`[^|]*`) \|([^|]*)\|", SETTINGS, re.MULTILINE))
    shown = {
        name.strip("`"): value.strip("` ")
        for names, values in rows.items()
        for name, value in zip(names.split(", "), values.split(", "), strict=False)
    }
    told = {"WORKERS", "ALLOWED_HOSTS", "GPUS", "DATABASE"}  # in words
    for field in Settings.model_fields:
        name = field.upper()
        assert PREFIX + name in shown
        if name not in told:
            value = getattr(defaults, field)
            text = f"{value:g}" if isinstance(value, float) else str(value)
            assert shown[PREFIX + name] == (text.lower() if isinstance(value, bool) else text)
    names = (*(field.upper() for field in Settings.model_fields), *ELSEWHERE)
    assert set(shown) == {PREFIX + name for name in names}


def test_what_would_hold_is_shown_and_nothing_started(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPWRIGHT_DATABASE", "postgresql://me:hush@127.0.0.1:1/none")
    monkeypatch.setenv("WARPWRIGHT_PORT", "1")
    assert main(["serve", "--check", "--json"]) == 0
    out = capsys.readouterr().out
    assert '"database": "postgresql+psycopg://me:***@127.0.0.1:1/none"' in out
    assert '"port": 1,' in out
    monkeypatch.setenv("WARPWRIGHT_REQUIRE_KEYS", "never")
    assert main(["serve", "--check", "--json"]) == 2
    assert "WARPWRIGHT_REQUIRE_KEYS" in capsys.readouterr().out


LONG = "sqlite:////" + "/".join(f"folder_{i:02}" for i in range(40)) + "/file.db"


def test_every_setting_is_shown_whole_however_narrow_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = {
        "ALLOWED_HOSTS": "a.example,b.example",
        "DATABASE": LONG,
        "CACHE": "/" + "c" * 300 + ".0",
        "ANSWER_CACHE_BYTES": "12345678",
        "GPUS": "2,0",
        "BODY_DEADLINE_S": "1234.5678",
        "METRICS_OPEN": "true",
    }
    monkeypatch.setenv("COLUMNS", "20")
    for name, value in changed.items():
        monkeypatch.setenv(PREFIX + name, value)
    assert main(["serve", "--check"]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert set(shown) == {name.lower() for name in (*Settings.model_fields, *ELSEWHERE)}
    for name, value in changed.items():
        assert shown[name.lower()] == value
    assert shown["solve_deadline_s"] == "60"


@pytest.mark.parametrize(
    ("variables", "keys"),
    [
        ({}, "not needed"),
        ({"HOST": "0.0.0.0"}, "needed"),
        ({"REQUIRE_KEYS": "always"}, None),
    ],
)
def test_what_auto_comes_to_is_shown(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    keys: str | None,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(PREFIX + name, value)
    automatic = {
        name
        for name, field in Settings.model_fields.items()
        if "auto" in get_args(field.annotation)
    }
    assert main(["serve", "--check", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert set(record["resolved"]) == automatic
    assert main(["serve", "--check"]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["require_keys"] == ("always" if keys is None else f"auto: {keys}")
    assert shown["log_format"] == "auto: json"  # standard error is no terminal here


def test_a_variable_that_nothing_reads_is_told_by_the_check(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPWRIGHT_PROT", "1")
    assert main(["serve", "--check"]) == 0
    assert "nothing reads WARPWRIGHT_PROT" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_openapi_document_says_whether_a_key_is_needed(host: str) -> None:
    schema = create_app(Settings(host=host), Database(Settings().database)).openapi()
    operation = schema["paths"]["/v1/optimize"]["post"]
    needed = {"key": ["optimize"]}
    assert operation["security"] == ([{}, needed] if host == "127.0.0.1" else [needed])
    assert "security" not in schema["paths"]["/healthz"]["get"]
    assert schema["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
