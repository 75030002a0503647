"""Builds the image and runs it without a container daemon.

buildah needs none, and a base image is made with debootstrap, so that nothing is pulled from a
registry: Debian's Python in place of the official image's. A container is run from the image's
own configuration (user, environment, entry point) in namespaces of its own, over a root that is
read-only but for its volumes and /tmp, without capabilities.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUITE = "bookworm"
PACKAGES = "ca-certificates,python3,python3-venv,python-is-python3"
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
NEEDED = {
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}
"""Commands and the Debian packages that have them."""

UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "--uts")

PIP_TOLD = ("cert", "index-url", "extra-index-url", "proxy", "trusted-host", "timeout")
"""What pip is told on this host, a mirror or its certificate say, that holds in the build too."""


def missing() -> str:
    """What this host lacks to build and run the image; empty where nothing."""
    if os.geteuid() != 0:
        return "root is needed: a container without a daemon is made of mounts"
    packages = sorted({package for name, package in NEEDED.items() if shutil.which(name) is None})
    return f"not installed: apt install {' '.join(packages)}" if packages else ""


@dataclass(frozen=True, slots=True)
class Image:
    """A built image in a storage folder of its own."""

    store: Path
    name: str

    def configuration(self) -> dict[str, Any]:
        """The image's configuration, as Docker has it."""
        document = json.loads(_buildah(self.store, "inspect", "--type", "image", self.name))
        configuration: dict[str, Any] = document["Docker"]["config"]
        return configuration

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        """The root of a fresh container of this image."""
        container = _buildah(self.store, "from", "--pull-never", self.name).strip()
        try:
            yield Path(_buildah(self.store, "mount", container).strip())
        finally:
            _buildah(self.store, "rm", container)


def build(store: Path, commit: str) -> Image:
    """The image of this tree. Raises RuntimeError with the end of the build's output."""
    base = _base_image(store)
    pip = store / "pip.conf"
    told = _pip_told()
    pip.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in told.items()))
    volumes = [f"{pip}:/etc/pip.conf:ro"]
    if "cert" in told:
        volumes.append(f"{told['cert']}:{told['cert']}:ro")
    _buildah(
        store,
        *("build", "--format", "docker", "--pull-never", "--tag", "warpwright"),
        *("--build-arg", f"BASE={base}", "--build-arg", f"COMMIT={commit}"),
        *(word for volume in volumes for word in ("--volume", volume)),
        str(ROOT),
    )
    return Image(store, "localhost/warpwright")


@contextmanager
def running(
    image: Image, root: Path, volumes: Mapping[str, Path], *words: str, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A container's process, its output in ``root``.log; killed at the end.

    ``volumes`` are this host's folders by their place in the container, and owned by its user
    from here on; ``words`` stand in place of the image's command. It has the host's network.
    """
    configuration = image.configuration()
    user = configuration["User"]
    script = ["set -e", f"mount --bind {root} {root}"]
    for place, folder in volumes.items():
        os.chown(folder, int(user), int(user))
        script.append(f"mount --bind {folder} {root}{place}")
    script += [
        f"mount -o remount,ro,bind {root}",
        f"mount -t proc proc {root}/proc",
        f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp",
        f"mount --rbind /dev {root}/dev",
    ]
    command = [*configuration["Entrypoint"], *(words or configuration["Cmd"])]
    variables = dict(entry.split("=", 1) for entry in configuration["Env"]) | environment
    inside = f"cd {configuration['WorkingDir']} && exec {shlex.join(command)}"
    script.append(
        f"exec chroot {root} /usr/bin/setpriv --reuid {user} --regid {user} --clear-groups "
        f"--no-new-privs --bounding-set=-all /bin/sh -c {shlex.quote(inside)}"
    )
    # A file: what still holds a pipe when the container has gone would keep its reader waiting.
    log = log_of(root).open("wb")
    process = subprocess.Popen(
        [*UNSHARE, "/bin/sh", "-c", "\n".join(script)],
        env=variables,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    log.close()
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def log_of(root: Path) -> Path:
    """Where what a container prints goes."""
    return root.with_name(root.name + ".log")


def _buildah(store: Path, *words: str) -> str:
    own = [
        "--storage-driver",
        "vfs",
        "--root",
        str(store / "images"),
        "--runroot",
        str(store / "run"),
    ]
    ended = subprocess.run(
        ["buildah", *own, *words],
        env=os.environ | {"BUILDAH_ISOLATION": "chroot"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        told = (ended.stdout + ended.stderr)[-4000:]
        raise RuntimeError(f"buildah {words[0]} failed with {ended.returncode}:\n{told}")
    return ended.stdout


def _base_image(store: Path) -> str:
    """An image of Debian with Python, made once in a store."""
    name = "localhost/warpwright-base"
    if name in _buildah(store, "images", "--format", "{{.Name}}").split():
        return name
    root = store / "base"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root), MIRROR],
        stdout=sys.stderr,
        check=True,
    )
    container = _buildah(store, "from", "scratch").strip()
    _buildah(store, "add", container, str(root), "/")
    _buildah(store, "commit", container, name)
    _buildah(store, "rm", container)
    shutil.rmtree(root)
    return name


def _pip_told() -> dict[str, str]:
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    told: dict[str, str] = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        name, value = name.rpartition(".")[2], value.strip("'")
        remote = ("file:" not in value and not value.startswith("/")) or name == "cert"
        if name in PIP_TOLD and remote:
            told[name] = value
    return told
