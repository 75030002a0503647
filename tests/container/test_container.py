"""The image, built and started as it would be next to a GPU: `make test-container`.

Long, and for root on a Debian host with buildah and debootstrap: not part of `make test`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.container.image import Image, build, log_of, missing, running

pytestmark = pytest.mark.container
COMMIT = "0123456789abcdef0123456789abcdef01234567"
START_S = 120.0


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image of this tree; its base is kept in the cache folder from run to run."""
    if lack := missing():
        pytest.fail(lack)  # asked for by name: to skip would hide that nothing was tested
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    store = cache / "warpwright-container-test"
    store.mkdir(parents=True, exist_ok=True)
    return build(store, COMMIT)


@pytest.fixture
def root(image: Image) -> Iterator[Path]:
    with image.mounted() as root:
        yield root


@pytest.fixture
def volumes(tmp_path: Path) -> dict[str, Path]:
    places = {
        "/var/lib/warpwright": tmp_path / "state",
        "/var/cache/warpwright": tmp_path / "cache",
    }
    for folder in places.values():
        folder.mkdir()
    tmp_path.chmod(0o755)
    return places


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def ask(port: int, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    """Status and body of an answer; 0 where nothing listens yet."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> float:
    """Seconds until /readyz said so."""
    begun = time.monotonic()
    while ask(port, "/readyz")[0] != 200:
        if process.poll() is not None:
            pytest.fail(f"the service ended with {process.returncode}")
        assert time.monotonic() < begun + START_S, "the service did not get ready"
        time.sleep(0.05)
    return time.monotonic() - begun


def size_mb(root: Path) -> float:
    """Size of a container's files in MB."""
    files = (Path(folder) / name for folder, _, names in os.walk(root) for name in names)
    return sum(file.lstat().st_size for file in files) / 1e6


def test_the_image_says_what_it_is(image: Image, root: Path) -> None:
    configuration = image.configuration()
    variables = dict(entry.split("=", 1) for entry in configuration["Env"])
    assert configuration["Labels"]["org.opencontainers.image.revision"] == COMMIT
    assert configuration["User"] == "10001"
    assert variables["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert set(configuration["Volumes"]) == {"/var/lib/warpwright", "/var/cache/warpwright"}
    assert configuration["Healthcheck"]["Test"][0] == "CMD"
    venv = root / "srv" / "venv"
    assert not list(venv.glob("lib/python*/site-packages/pip/")), "pip has no place in it"
    assert not (root / "build").exists(), "what builds it has no place in it"
    sys.stderr.write(f"image: {size_mb(root):.0f} MB, {size_mb(venv):.0f} of them packages\n")


def test_it_answers_over_a_read_only_root_as_a_user_without_rights(
    image: Image, root: Path, volumes: dict[str, Path]
) -> None:
    port = free_port()
    environment = {"WARPWRIGHT_PORT": str(port), "WARPWRIGHT_HOST": "127.0.0.1"}
    with running(image, root, volumes, **environment) as process:
        start_s = wait_until_ready(process, port)
        sys.stderr.write(f"start: {start_s:.1f} s until ready\n")
        status, answer = ask(port, "/v1/optimize", {"m": 4096, "n": 4096, "k": 4096})
        assert status == 200
        assert answer["proof"]["status"] == "optimal"
        for path in ("/", "/static/page.css", "/static/page.js"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as file:
                assert file.status == 200
        owner = process_owner(process.pid)
        assert owner == {10001}, "every process of it"
    assert (volumes["/var/lib/warpwright"] / "warpwright.db").exists()


def test_elsewhere_than_on_loopback_it_needs_a_key(
    image: Image, root: Path, volumes: dict[str, Path]
) -> None:
    port = free_port()
    with running(image, root, volumes, WARPWRIGHT_PORT=str(port)) as process:
        wait_until_ready(process, port)
        assert ask(port, "/v1/optimize", {"m": 64, "n": 64, "k": 64})[0] == 401
        assert ask(port, "/metrics")[0] == 401


def test_a_missing_driver_is_told(image: Image, root: Path, volumes: dict[str, Path]) -> None:
    port = free_port()
    environment = {"WARPWRIGHT_PORT": str(port), "WARPWRIGHT_HOST": "127.0.0.1"}
    with running(image, root, volumes, **environment) as process:
        wait_until_ready(process, port)
        assert ask(port, "/readyz")[1]["gpu"] == "absent"
        status, problem = ask(port, "/v1/verifications", {"m": 64, "n": 64, "k": 64})
        assert status == 503
        assert "driver" in problem["detail"]
        assert "--gpus all" in problem["detail"]
        assert "--gpus all" in log_of(root).read_text(), "in the log too"


def test_the_health_check_is_the_images_own(
    image: Image, root: Path, volumes: dict[str, Path]
) -> None:
    port = free_port()
    check = image.configuration()["Healthcheck"]["Test"][1:]
    environment = os.environ | {"WARPWRIGHT_PORT": str(port)}
    assert subprocess.run(check, env=environment, capture_output=True, check=False).returncode != 0
    settings = {"WARPWRIGHT_PORT": str(port), "WARPWRIGHT_HOST": "127.0.0.1"}
    with running(image, root, volumes, **settings) as process:
        wait_until_ready(process, port)
        subprocess.run(check, env=environment, check=True)


def process_owner(pid: int) -> set[int]:
    """User ids of a process's descendants."""
    owners: set[int] = set()
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for child in children:
        owners.add(Path(f"/proc/{child}").stat().st_uid)
        owners |= process_owner(child)
    return owners
