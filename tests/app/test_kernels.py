"""/v1/kernels/{id} and ``warpwright export``: a kernel and its launch to take home."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.cli.main import main
from app.schemas.kernels import KernelExport
from kernels.compile import compile_kernel
from kernels.errors import CompilerAbsent
from kernels.export.source import kernel_source
from kernels.sources import kernel_id, key_of, source_hash
from solver.families.sm90_gemm import CompileKey
from tests.app.conftest import service

KEY = CompileKey("bf16", "tn", 64, 64, 64, 1, 0, 0)
CONFIG = {"family": "sm90_gemm", "tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 4}
SIZE = {"m": 128, "n": 128, "k": 128}
AT = f"/v1/kernels/{kernel_id(KEY)}"
WITH_LAUNCH = {**SIZE, "config": json.dumps(CONFIG)}


def content(file: dict[str, str]) -> bytes:
    text = file["content"]
    return base64.b64decode(text) if file["encoding"] == "base64" else text.encode()


def test_a_kernel_is_its_source_and_its_cubin(client: TestClient) -> None:
    response = client.get(AT)
    assert response.status_code == 200
    body = KernelExport.model_validate(response.json())
    assert (body.id, body.entry, body.recipe) == (kernel_id(KEY), "sm90_gemm", None)
    files = {name: content(file) for name, file in response.json()["files"].items()}
    assert files == {
        "gemm.cu": kernel_source(KEY).encode(),
        "gemm.sm_90a.cubin": compile_kernel(KEY).cubin,
    }
    for name, file in body.files.items():
        assert file.sha256 == hashlib.sha256(files[name]).hexdigest()


def test_the_kernel_of_an_answer_is_found_with_its_launch(client: TestClient) -> None:
    answer = client.post("/v1/optimize", json={**SIZE, "proof": "none"}).json()
    config = json.dumps(answer["config"])
    found = client.get(
        f"/v1/kernels/{answer['kernel']['id']}", params={**SIZE, "config": config}
    ).json()
    launch = found["recipe"]["launches"][-1]
    assert launch["grid"] == [answer["kernel"]["grid"], 1, 1]
    assert launch["block"] == [answer["kernel"]["threads"], 1, 1]
    assert launch["dynamic_smem_bytes"] == answer["kernel"]["smem_bytes"]
    assert found["registers_per_thread"] == answer["kernel"]["registers_per_thread"]
    assert found["recipe"]["config"] == answer["config"]
    assert client.get(f"/v1/kernels/{answer['kernel']['id']}", params=SIZE).json() == found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "which alone are exported; one looks like bf16_tn_"),
        ("x" * 5000, "is no id of a kernel for products"),
        ("bf16_tn_64x65x64_w1_r0_f0-" + "0" * 12, "no kernel bf16_tn_64x65x64_w1_r0_f0"),
        ("fp32_tn_64x64x64_w1_r0_f0-" + "0" * 12, "no kernel fp32"),
        ("bf16_tn_064x64x64_w1_r0_f0-" + source_hash()[:12], "no kernel bf16_tn_064"),
        (f"{KEY.name}-{'0' * 12}", f"other sources than this version's, .* {kernel_id(KEY)}"),
    ],
)
def test_an_id_that_no_kernel_has_is_not_found(client: TestClient, name: str, words: str) -> None:
    response = client.get(f"/v1/kernels/{name}", params=WITH_LAUNCH)
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["type"].endswith(":not-found")
    assert len(problem["detail"]) < 300
    assert re.search(words, problem["detail"])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"m": 128}, "n"),
        ({**SIZE, "colour": 1}, "colour"),
        ({**SIZE, "config": "{"}, "config"),
        ({**SIZE, "config": json.dumps({**CONFIG, "stages": 99})}, "config.stages"),
        ({**SIZE, "config": json.dumps({**CONFIG, "tile_n": 128})}, "config"),
        ({**WITH_LAUNCH, "layout": "tt"}, "config"),
        ({**WITH_LAUNCH, "device": "a100"}, "device"),
        ({**WITH_LAUNCH, "lda": 5}, "lda"),
    ],
)
def test_a_launch_that_is_illegal_or_another_kernels_is_refused(
    client: TestClient, query: dict[str, Any], field: str
) -> None:
    response = client.get(AT, params=query)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["field"] == field


def test_what_the_caller_has_is_not_sent_again(client: TestClient) -> None:
    first = client.get(AT, params=WITH_LAUNCH)
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "private, max-age=300"
    assert client.get(AT).headers["etag"] != tag
    again = client.get(AT, params=WITH_LAUNCH, headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == tag
    head = client.head(AT, params=WITH_LAUNCH)
    assert (head.headers["content-length"], head.content) == (str(len(first.content)), b"")


def absent() -> None:
    """Warms a solver process whose compiler is not installed."""
    import app.exports as exports
    from app.answers import warm

    def refuse(*_: object) -> None:
        raise CompilerAbsent("NVRTC is not installed")

    warm()
    exports.compile_kernel = refuse  # type: ignore[assignment]


def test_without_a_compiler_the_service_says_so_and_goes_on() -> None:
    with service(initialise=absent) as client:
        response = client.get(AT)
        assert response.status_code == 503
        assert response.json()["type"].endswith(":compiler-absent")
        assert client.get("/readyz").json()["solver_processes"] == 1


def test_the_command_writes_what_the_service_answers(
    client: TestClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "export"
    words = ["export", "128", "128", "128", "--config", json.dumps(CONFIG), "--out", str(folder)]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(record["files"]) == set(written)
    assert record["kernel_id"] == kernel_id(KEY)
    answered = client.get(AT, params=WITH_LAUNCH).json()
    assert json.loads(written.pop("recipe.json")) == answered["recipe"]
    assert {name: content(file) for name, file in answered["files"].items()} == written
    assert main(words) == 0
    assert "gemm.cu" in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    words = ["export", "128", "128", "128", "--out", str(tmp_path / "file" / "below")]
    assert main(words) == 3
    assert "can't be made" in " ".join(capsys.readouterr().err.split())


def test_the_pick_is_exported_without_a_configuration(tmp_path: Path) -> None:
    assert main(["export", "100", "200", "300", "--layout", "tt", "--out", str(tmp_path)]) == 0
    recipe = json.loads((tmp_path / "recipe.json").read_text())
    assert key_of(recipe["kernel"]).layout == "tt"
    for module in recipe["modules"].values():
        for name, digest in module["sha256"].items():
            assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
