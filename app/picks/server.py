"""A running service as the place where picks are verified."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import time
import urllib.error
import urllib.request
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn
from urllib.parse import urlsplit

from app.errors import EnvironmentLacks
from app.picks.gpu import DEADLINE_S, Ran, Run, check_device
from app.picks.results import check_result
from solver.errors import InvalidInput
from solver.limits import shortened

KEY_VARIABLE = "WARPWRIGHT_API_KEY"
CALL_S = 60.0
POLL_S = 0.1
POLL_MOST_S = 2.0
JOB_S = DEADLINE_S * 4
"""Longest wait for one job, those before it in the queue included."""
RETRY_MOST_S = 30.0
ANSWER_BYTES_MAX = 4 << 20
WORDS_MAX = 400


class _Refused(Exception):
    """An answer with an error status."""

    def __init__(self, status: int, detail: str, retry_after_s: float | None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after_s = retry_after_s


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The key is for the server that was named and for no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


class ServerRunner:
    """A Warpwright service at ``url``; an API key comes from the environment, if one is there."""

    compiles_here = False

    def __init__(self, url: str, device: str) -> None:
        self._url = _address(url)
        self._device = device
        self._key = _own_key()
        self._opener = urllib.request.build_opener(_NoRedirects)
        self.where = self._url

    def __enter__(self) -> ServerRunner:
        """Raises EnvironmentLacks where there is no such service, or none with that GPU."""
        body = self._call("GET", "/v1/devices")
        host = body.get("host", {})
        if host is None:
            raise EnvironmentLacks(f"the service at {self._url} has no GPU")
        if not isinstance(host, dict) or not isinstance(host.get("name"), str):
            self._stranger()
        check_device(self._device, host.get("profile"), f"the GPU of {self._url}, {host['name']},")
        self.where = f"{host['name']} at {self._url}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def run(self, run: Run) -> Ran:
        """Submit a verification and wait for its end; one that is given up is cancelled."""
        began = time.monotonic()
        job = self._submit(run, began + JOB_S)
        path = f"/v1/verifications/{job.get('id')}"
        try:
            pause_s = POLL_S
            while job.get("status") in ("queued", "running"):
                if time.monotonic() > began + JOB_S:
                    raise EnvironmentLacks(f"{self._url} did not end a job in {JOB_S:g} s")
                time.sleep(pause_s)
                pause_s = min(pause_s * 1.5, POLL_MOST_S)
                job = self._patiently("GET", path, None, {}, began + JOB_S)
        except BaseException:
            with suppress(EnvironmentLacks, _Refused):
                self._call("DELETE", path)
            raise
        result = job.get("result")
        if not isinstance(result, dict):
            result = {"details": f"the job ended as {job.get('status')}"}
        if job.get("status") == "passed":
            check_result(result, self._url)
        self._check_kernel(run, result)
        elapsed_s = time.monotonic() - began
        return Ran(str(job.get("status")), job.get("reason"), result, elapsed_s)

    def _submit(self, run: Run, until_s: float) -> dict[str, Any]:
        body = {
            **run.question.problem.to_dict(),
            "config": run.config.to_dict(),
            "cache": run.question.cache,
            "against": [other.to_dict() for other in run.others],
        }
        # A name of its own: handed in again after an answer that never came, it is the same job.
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        return self._patiently("POST", "/v1/verifications", body, headers, until_s)

    def _check_kernel(self, run: Run, result: dict[str, Any]) -> None:
        ran = result.get("kernel_id")
        if ran is not None and ran != run.kernel_id:
            raise EnvironmentLacks(
                f"{self._url} runs another version's kernels: {ran}, here {run.kernel_id}"
            )

    def _patiently(
        self, method: str, path: str, body: Any, headers: dict[str, str], until_s: float
    ) -> dict[str, Any]:
        """A call that is made again while the service says when it may be."""
        while True:
            try:
                return self._call(method, path, body, headers)
            except _Refused as refused:
                wait_s = refused.retry_after_s
                if wait_s is None or wait_s > RETRY_MOST_S or time.monotonic() + wait_s > until_s:
                    raise EnvironmentLacks(self._words(refused)) from None
                time.sleep(wait_s)

    def _call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """The JSON object answered. Raises _Refused for a refusal that may pass, and
        EnvironmentLacks for all else."""
        sent = {"Accept": "application/json", **(headers or {})}
        if self._key:
            sent["Authorization"] = f"Bearer {self._key}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        try:
            request = urllib.request.Request(self._url + path, data, sent, method=method)
            with self._opener.open(request, timeout=CALL_S) as response:
                answer = json.loads(response.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                refused = _refusal(error)
            if refused.status in (429, 503) and refused.retry_after_s is not None:
                raise refused from None
            raise EnvironmentLacks(self._words(refused)) from None
        except urllib.error.URLError as error:
            why = getattr(error.reason, "strerror", None) or error.reason
            raise EnvironmentLacks(f"no service answers at {self._url}: {why}") from None
        except (OSError, http.client.HTTPException) as error:
            raise EnvironmentLacks(f"no service answers at {self._url}: {error!r}") from None
        except (ValueError, RecursionError):
            self._stranger()
        if not isinstance(answer, dict):
            self._stranger()
        return answer

    def _stranger(self) -> NoReturn:
        raise EnvironmentLacks(f"what answers at {self._url} is no Warpwright service")

    def _words(self, refused: _Refused) -> str:
        if refused.status == 401:
            has = "does not take the key in" if self._key else "wants an API key:"
            return f"{self._url} {has} {KEY_VARIABLE}: {refused.detail}"
        return f"{self._url} answers {refused.status}: {refused.detail}"


def _own_key() -> str:
    """The environment's API key, "" without one. Raises InvalidInput for what no header can hold,
    which it does not repeat."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InvalidInput(KEY_VARIABLE, "must be one line of printable ASCII")
    return key


def _address(url: str) -> str:
    """A service's address, without a slash at its end. Raises InvalidInput for what is none."""
    got = "" if "@" in url else f", got {shortened(repr(url))}"  # a password is not repeated
    wrong = InvalidInput("--server", f"must be an address as http://host:8000{got}")
    try:
        parts = urlsplit(url)
        has_port = parts.port != 0
    except ValueError:  # an IPv6 address without its bracket, a port that is no number
        raise wrong from None
    written = url.isascii() and url.isprintable() and " " not in url
    known = parts.scheme in ("http", "https") and parts.hostname
    if not (written and known and has_port) or parts.query or parts.fragment:
        raise wrong
    if parts.username is not None:
        raise InvalidInput("--server", f"must not hold a password; {KEY_VARIABLE} has the key")
    return url.rstrip("/")


def _refusal(error: urllib.error.HTTPError) -> _Refused:
    """An error status with the words that came with it."""
    detail, retry = str(error.reason), error.headers.get("Retry-After", "")
    with suppress(OSError, ValueError, RecursionError, http.client.HTTPException):
        body = json.loads(error.read(ANSWER_BYTES_MAX))
        if isinstance(body, dict) and isinstance(body.get("detail"), str):
            detail = body["detail"]
    wait_s = float(retry) if retry.isascii() and retry.isdigit() and len(retry) < 9 else None
    return _Refused(error.code, detail[:WORDS_MAX], wait_s)
