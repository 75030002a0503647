"""A service as a process of its own, started, killed and stopped, and a client of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

READY_S = 120.0
GONE_S = 120.0
REQUEST_S = 60.0
POLL_S = 0.05
PAGE = 100
AUDIT_PAGE = 200
UNREACHABLE = (OSError, http.client.HTTPException)
"""What a request raises where the service goes away meanwhile."""


class ServiceFault(Exception):
    """The service ended, or answered, otherwise than it must."""


class NotInTime(Exception):
    """Something did not happen within its time."""


@dataclass(frozen=True, slots=True)
class User:
    """Whose process it is."""

    uid: int
    gid: int

    def options(self) -> dict[str, Any]:
        """Arguments of subprocess's; needs root."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


class ServiceProcess:
    """One process after another by the same command, which prints ``{"port": N}`` once requests are
    answered. ``log`` is a file that each adds to; ``user`` None: this process's own."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        folder: Path,
        user: User | None = None,
    ) -> None:
        self._command = list(command)
        self._environment = dict(environment)
        self._log = log
        self._folder = folder
        self._user = {} if user is None else user.options()
        self.process: subprocess.Popen[str] | None = None
        self.port = 0

    def set(self, name: str, value: str) -> None:
        """A variable of the processes that are started from now on."""
        self._environment[name] = value

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def log(self) -> str:
        """What every process said."""
        return self._log.read_text("utf-8")

    @property
    def pid(self) -> int:
        """The process's id, which is its group's. Raises ServiceFault where there is none."""
        if self.process is None:
            raise ServiceFault("the service is not running")
        return self.process.pid

    def start(self) -> None:
        """Start a process and wait until it is ready. Raises ServiceFault and NotInTime."""
        with self._log.open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
                **self._user,
            )
        try:
            self.port = self._read_port()
            until(self._ready, READY_S)
        except BaseException:
            self.kill()
            raise

    def _read_port(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        text = ""
        while "}" not in text:
            line = self.process.stdout.readline()
            if not line:
                raise ServiceFault(f"the service did not start: {self.log[-2000:]}")
            text += line
        return int(json.loads(text)["port"])

    def _ready(self) -> bool:
        self.require_running()
        return self.ask("GET", "/readyz")[0] == 200

    def require_running(self) -> None:
        """Raise ServiceFault where the process has ended by itself."""
        if self.process is None or self.process.poll() is not None:
            raise ServiceFault(f"the service ended: {self.log[-2000:]}")

    def kill(self) -> None:
        """End the process as ``kill -9`` does; its children end by themselves."""
        if self.process is not None:
            self.process.kill()
            self.wait()

    def kill_group(self) -> None:
        """``kill -9`` of the process and of all its children at once."""
        self.signal_group(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """End the process by SIGTERM, and wait."""
        assert self.process is not None
        self.process.terminate()
        return self.wait()

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process and all its children, as a terminal or systemd does."""
        os.killpg(self.pid, number)

    def wait(self) -> int:
        """The exit code, once the process has gone."""
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait(GONE_S)
        self.process.stdout.close()
        self.process = None
        return code

    def ask(
        self, method: str, path: str, content: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of a request; one of UNREACHABLE where the service went away."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_S)
        try:
            text = None if content is None else json.dumps(content)
            sent = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, text, sent)
            response = connection.getresponse()
            answer = response.read()
            media_type = response.headers.get_content_type()
            return response.status, json.loads(answer) if "json" in media_type else answer.decode()
        finally:
            connection.close()

    def read(self, path: str) -> Any:
        """The body at an address. Raises ServiceFault for another status than 200."""
        status, body = self.ask("GET", path)
        if status != 200:
            raise ServiceFault(f"GET {path}: {status}, {body}")
        return body

    def submit(self, content: Any, key: str | None = None) -> dict[str, Any]:
        """A verification that was accepted, or had been. Raises ServiceFault."""
        headers = {} if key is None else {"Idempotency-Key": key}
        status, job = self.ask("POST", "/v1/verifications", content, headers)
        if status not in (200, 202):
            raise ServiceFault(f"POST of {content}: {status}, {job}")
        return job  # type: ignore[no-any-return]

    def hand_in(
        self, asked: Mapping[str, Any], accepted: dict[str, str], end_s: float = float("inf")
    ) -> None:
        """Post what was not accepted yet, under its own key, until then; ``accepted`` gets ids."""
        for key, content in asked.items():
            if key not in accepted and time.monotonic() < end_s:
                with suppress(*UNREACHABLE):
                    accepted[key] = self.submit(content, key)["id"]

    def job(self, job_id: str) -> dict[str, Any]:
        """A verification as it stands."""
        return self.read(f"/v1/verifications/{job_id}")  # type: ignore[no-any-return]

    def ended(self, job_id: str, within_s: float = 60.0) -> dict[str, Any]:
        """A verification once it has ended."""
        until(lambda: self.job(job_id)["finished_at"] is not None, within_s)
        return self.job(job_id)

    def jobs(self, page: int = PAGE) -> list[dict[str, Any]]:
        """The verifications of every page, the newest first."""
        return self._pages("verifications", "after", page)

    def launches(self) -> list[dict[str, Any]]:
        """The audit's lines, the latest first."""
        return self._pages("launches", "before", AUDIT_PAGE)

    def _pages(self, plural: str, parameter: str, limit: int) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        further = ""
        while True:
            page = self.read(f"/v1/{plural}?limit={limit}{further}")
            rows += page[plural]
            if page["next"] is None:
                return rows
            further = f"&{parameter}={page['next']}"


def descendants(pid: int) -> list[int]:
    """Processes below one, as /proc has them."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it may leave meanwhile
                stat = (entry / "stat").read_text()
                parent = int(stat.rpartition(")")[2].split()[1])
                below.setdefault(parent, []).append(int(entry.name))
    family = [pid]
    for each in family:
        family += below.get(each, [])
    return family[1:]


def until(true: Callable[[], Any], within_s: float = 30.0) -> float:
    """The seconds it took for ``true()``, which may find the service unreachable meanwhile. Raises
    NotInTime."""
    begun = time.monotonic()
    while True:
        with suppress(*UNREACHABLE):
            if true():
                return time.monotonic() - begun
        if time.monotonic() - begun >= within_s:
            raise NotInTime(f"it did not happen in {within_s:g} s")
        time.sleep(POLL_S)
