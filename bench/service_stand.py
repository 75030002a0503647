"""A place to run the service from as in production: the program belongs to root and can't be
written to, and the service's user has a folder for its database and one for compiled kernels.

For root, which gives these away."""

from __future__ import annotations

import compileall
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.service_process import User
from kernels.cache import CACHE_VARIABLE

ROOT = Path(__file__).resolve().parents[1]
USER = "nobody"
READ_ONLY = ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
DROPPED = ("WARPWRIGHT_", "XDG_")
"""Prefixes of variables that would tell the service of other folders and settings."""

PROBE = """
import json, os, sys, tempfile
import app
def writable(folder):
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
print(json.dumps({
    "uid": os.getuid(),
    "gid": os.getgid(),
    "groups": os.getgroups(),
    "program": os.path.dirname(os.path.dirname(app.__file__)),
    "writable": [folder for folder in sys.argv[1:] if writable(folder)],
}))
"""


class StandUnusable(Exception):
    """The service can't be run from here as it is to be."""


@dataclass(frozen=True, slots=True)
class Stand:
    """The folders, and who runs the program in them by which interpreter."""

    tree: Path
    state: Path
    cache: Path
    user: User
    python: str

    @property
    def log(self) -> Path:
        """What the service says, in a folder that is not the user's."""
        return self.tree.parent / "service.log"

    def environment(self, **settings: str) -> dict[str, str]:
        """Variables of a process of the program that is installed here."""
        kept = {name: v for name, v in os.environ.items() if not name.startswith(DROPPED)}
        paths = [str(self.tree), *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
        if self.python != sys.executable:  # which would find its packages by itself
            paths += dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.state),
            "TMPDIR": str(self.state),
            "CUPY_CACHE_DIR": str(self.cache / "cupy"),
            CACHE_VARIABLE: str(self.cache),
            "WARPWRIGHT_DATABASE": f"sqlite:///{self.state / 'warpwright.db'}",
            **settings,
        }

    def probe(self) -> dict[str, Any]:
        """Who the service will be and which of the three folders it can write to, found out by a
        process like it.

        Raises StandUnusable where the interpreter or a package is out of the user's reach, the
        program is another, or what may be written to is not the state and the cache alone.
        """
        folders = [str(each) for each in (self.tree, self.state, self.cache)]
        who = f"uid {self.user.uid}"
        try:
            ended = subprocess.run(
                [self.python, "-c", PROBE, *folders],
                cwd=self.state,
                env=self.environment(),
                capture_output=True,
                text=True,
                check=False,
                **self.user.options(),
            )
        except OSError as error:
            raise StandUnusable(f"{who} can't run {self.python}: {error.strerror}") from error
        if ended.returncode:
            raise StandUnusable(f"{who} can't run the program: {ended.stderr.strip()[-500:]}")
        found: dict[str, Any] = json.loads(ended.stdout)
        if found["program"] != folders[0]:
            raise StandUnusable(
                f"the program of {found['program']} is run, not that of {self.tree}"
            )
        if found["writable"] != folders[1:]:
            raise StandUnusable(f"{who} can write to {found['writable']}, not {folders[1:]}")
        return {name: found[name] for name in ("uid", "gid", "groups")} | {
            "tree": "root's, read-only",
            "writable": ["state", "cache"],
        }

    def hand_over(self) -> None:
        """Give what lies in the state's and the cache's folder to the user."""
        for top in (self.state, self.cache):
            for path in (top, *top.rglob("*")):
                os.chown(path, self.user.uid, self.user.gid)

    def contents(self) -> Mapping[str, tuple[int, int, int]]:
        """Every file and folder of the program: its mode, size and time of change."""
        found = {}
        for path in (self.tree, *self.tree.rglob("*")):
            facts = path.stat()
            found[str(path)] = (facts.st_mode, facts.st_size, facts.st_mtime_ns)
        return found


def user_of(uid: int | None) -> User:
    """The user of an id, or USER. Raises StandUnusable for one that is not there, or is root."""
    try:
        entry = pwd.getpwnam(USER) if uid is None else pwd.getpwuid(uid)
    except KeyError:
        raise StandUnusable(f"there is no user {USER if uid is None else uid} here") from None
    if entry.pw_uid == 0:
        raise StandUnusable("the service is to run as another user than root")
    return User(entry.pw_uid, entry.pw_gid)


def packages() -> list[str]:
    """The folders that a wheel of this project has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found: list[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return found


@contextmanager
def stand(user: User, python: str, more: Sequence[str] = ()) -> Iterator[Stand]:
    """A stand in a temporary folder, gone afterwards. ``more`` are further folders of this checkout
    that the program takes along."""
    top = Path(tempfile.mkdtemp(prefix="warpwright-"))
    try:
        top.chmod(0o755)
        made = Stand(top / "program", top / "state", top / "cache", user, python)
        for folder in (*packages(), *more):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / folder, made.tree / folder, ignore=ignored)
        compileall.compile_dir(made.tree, quiet=2)
        for path in (made.tree, *made.tree.rglob("*")):
            path.chmod(path.stat().st_mode & READ_ONLY)
        for folder_ in (made.state, made.cache):
            folder_.mkdir(mode=0o700)
        made.hand_over()
        yield made
    finally:
        for folder_ in (f for f in top.rglob("*") if f.is_dir() and not f.is_symlink()):
            folder_.chmod(0o700)
        shutil.rmtree(top)
