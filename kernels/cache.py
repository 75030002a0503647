"""A folder of compiled kernels that several processes may share.

An entry is one file: SHA-256 of what follows, the identity it was stored under, the payload.
It appears whole or not at all (temporary name, fsync, rename), and one whose checksum or
identity is wrong counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernels.errors import CacheUnwritable

CACHE_VARIABLE = "WARPWRIGHT_CACHE"
_CHECKSUM_BYTES = hashlib.sha256().digest_size
_LOG = logging.getLogger(__name__)


def default_folder() -> Path:
    """``$WARPWRIGHT_CACHE``, else ``warpwright`` in the XDG cache folder of this user."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification has relative paths ignored. Without a home, "~" stays as it is,
    # relative, and is refused when something is stored.
    folder = Path(base) if base and Path(base).is_absolute() else Path("~/.cache")
    return Path(os.path.expanduser(folder)) / "warpwright"


def _encode(identity: Mapping[str, str]) -> bytes:
    return json.dumps(dict(identity), sort_keys=True).encode()


@dataclass(frozen=True, slots=True)
class KernelCache:
    """Payloads by identity, a mapping of strings that names everything that matters."""

    folder: Path

    def path(self, identity: Mapping[str, str]) -> Path:
        """The file of an entry, whether or not it exists."""
        return self.folder / "kernels" / f"{hashlib.sha256(_encode(identity)).hexdigest()}.bin"

    def load(self, identity: Mapping[str, str]) -> bytes | None:
        """The payload stored under exactly this identity; None where there is no sound one."""
        path = self.path(identity)
        try:
            stored = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _LOG.warning("kernel cache entry %s can't be read: %s", path, error)
            return None
        head = _encode(identity) + b"\n"
        checksum, body = stored[:_CHECKSUM_BYTES], stored[_CHECKSUM_BYTES:]
        if hashlib.sha256(body).digest() != checksum or not body.startswith(head):
            _LOG.warning("kernel cache entry %s is corrupt; its kernel is compiled again", path)
            return None
        return body[len(head) :]

    def store(self, identity: Mapping[str, str], payload: bytes) -> None:
        """Write an entry, replacing one that is there. Raises CacheUnwritable."""
        path = self.path(identity)
        body = _encode(identity) + b"\n" + payload
        try:
            self._make(path.parent)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(body).digest() + body)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            raise self._unwritable(error) from error

    def check_writable(self) -> None:
        """Raise CacheUnwritable where nothing can be stored."""
        try:
            self._make(self.folder)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise self._unwritable(error) from error

    def _make(self, folder: Path) -> None:
        if not folder.is_absolute():
            raise OSError(f"no home folder to put it in; set {CACHE_VARIABLE}")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _unwritable(self, error: OSError) -> CacheUnwritable:
        return CacheUnwritable(f"kernel cache {self.folder} can't be written: {error}")


def default_cache() -> KernelCache:
    """The cache in the default folder."""
    return KernelCache(default_folder())


def payload_of(kernel: Any) -> bytes:
    """What is kept of a compiled kernel, a dataclass with a ``cubin``: its other fields as a line
    of JSON, then the cubin."""
    figures = {name: value for name, value in asdict(kernel).items() if name != "cubin"}
    return json.dumps(figures).encode() + b"\n" + bytes(kernel.cubin)


def read_payload(payload: bytes) -> dict[str, Any]:
    """The fields of a kernel that was kept; ``key`` and sequences as JSON has them."""
    text, _, cubin = payload.partition(b"\n")
    return {**json.loads(text), "cubin": cubin}
