"""compose.yaml and the Dockerfile, as far as they can be held against the code without a daemon."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from app.http_server import LATE_S
from app.serve import CONNECTIONS_S
from app.settings import load_settings, unknown_variables

ROOT = Path(__file__).parents[2]


class Compose(yaml.SafeLoader):
    """Compose's own tag, as what it stands for: nothing."""


Compose.add_constructor("!reset", lambda loader, node: [])


def test_compose_mounts_files_that_there_are_and_sets_variables_that_are_read() -> None:
    compose = yaml.load((ROOT / "compose.yaml").read_text("utf-8"), Compose)
    services = compose["services"]
    assert services.keys() == {"warpwright", "postgres", "prometheus", "grafana"}
    for name, each in services.items():
        for volume in each["volumes"]:
            source, target, *_ = volume.split(":")
            assert (ROOT / source).exists() or source in compose["volumes"]
            assert target.startswith("/")
        for port in each.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        for needed in each.get("depends_on", ()):
            assert needed in services
    ours = services["warpwright"]
    assert unknown_variables(ours["environment"]) == ()
    (device,) = ours["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert ours["read_only"] is True
    stop_s = CONNECTIONS_S + LATE_S + load_settings(ours["environment"]).stop_deadline_s
    assert float(ours["stop_grace_period"].removesuffix("s")) > stop_s
    without = yaml.load((ROOT / "deploy/compose.no-gpu.yaml").read_text("utf-8"), Compose)
    assert without["services"].keys() == {"warpwright"}
    assert without["services"]["warpwright"]["deploy"]["resources"]["reservations"] == {
        "devices": []
    }


def test_the_image_keeps_what_it_must_in_its_volumes_and_sets_variables_that_are_read() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    last = text.rpartition("\nFROM ")[2]
    (lines,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", last, re.MULTILINE)
    variables = dict(line.strip().split("=", 1) for line in lines.split("\\\n"))
    assert unknown_variables(variables) == ()
    settings = load_settings(variables)
    assert settings.keys_required
    kept = json.loads(re.findall(r"^VOLUME (.*)$", last, re.MULTILINE)[0])
    paths = [variables["WARPWRIGHT_CACHE"], variables["WARPWRIGHT_PROFILES"]]
    for path in (*paths, settings.database.removeprefix("sqlite:///"), variables["HOME"]):
        assert any(path == folder or path.startswith(f"{folder}/") for folder in kept), path
    assert re.search(r"^USER [1-9]\d*$", last, re.MULTILINE)
