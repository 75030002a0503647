"""The kernel cache: whole entries or none, whatever happens to the writer or the disk."""

from __future__ import annotations

import logging
import multiprocessing
import os
from pathlib import Path

import pytest

from kernels import cache as cache_module
from kernels.cache import CACHE_VARIABLE, KernelCache, default_folder
from kernels.errors import CacheUnwritable

IDENTITY = {"kernel_id": "k-0123", "nvrtc": "13.5", "arch": "sm_90a"}
PAYLOAD = bytes(range(256)) * 40


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "cache")


def test_what_was_stored_comes_back(cache: KernelCache) -> None:
    assert cache.load(IDENTITY) is None
    cache.store(IDENTITY, PAYLOAD)
    assert cache.load(IDENTITY) == PAYLOAD


@pytest.mark.parametrize("field", IDENTITY)
def test_every_part_of_the_identity_separates_entries(cache: KernelCache, field: str) -> None:
    cache.store(IDENTITY, PAYLOAD)
    assert cache.load({**IDENTITY, field: "other"}) is None


@pytest.mark.parametrize("at", [0, 31, 32, 60, 500, -1])
def test_one_flipped_bit_makes_an_entry_absent(
    cache: KernelCache, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    cache.store(IDENTITY, PAYLOAD)
    path = cache.path(IDENTITY)
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 1
    path.write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
        assert cache.load(IDENTITY) is None
    assert "corrupt" in caplog.text


@pytest.mark.parametrize("length", [0, 10, 32, 100, 4000])
def test_a_truncated_entry_counts_as_absent(cache: KernelCache, length: int) -> None:
    cache.store(IDENTITY, PAYLOAD)
    path = cache.path(IDENTITY)
    path.write_bytes(path.read_bytes()[:length])
    assert cache.load(IDENTITY) is None


def test_an_entry_copied_under_another_name_is_not_believed(cache: KernelCache) -> None:
    other = {**IDENTITY, "nvrtc": "12.9"}
    cache.store(IDENTITY, PAYLOAD)
    cache.path(other).write_bytes(cache.path(IDENTITY).read_bytes())
    assert cache.load(other) is None


def test_a_writer_that_dies_before_the_rename_leaves_the_old_entry(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store(IDENTITY, PAYLOAD)

    def fail(*_: object) -> None:
        raise OSError("disk gone")

    monkeypatch.setattr(cache_module.os, "replace", fail)
    with pytest.raises(CacheUnwritable, match="disk gone"):
        cache.store(IDENTITY, b"new")
    assert cache.load(IDENTITY) == PAYLOAD
    assert [p.name for p in cache.path(IDENTITY).parent.iterdir()] == [cache.path(IDENTITY).name]


def test_a_folder_that_cannot_be_made_is_named_in_the_error(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(CacheUnwritable, match="file can't be written"):
        KernelCache(in_the_way).store(IDENTITY, PAYLOAD)
    with pytest.raises(CacheUnwritable, match="file can't be written"):
        KernelCache(in_the_way).check_writable()


def test_what_can_be_written_is_left_as_it_is(cache: KernelCache) -> None:
    cache.check_writable()
    cache.store(IDENTITY, PAYLOAD)
    cache.check_writable()
    assert os.listdir(cache.folder) == ["kernels"]


def test_a_missing_home_is_an_error_and_not_a_folder_called_tilde(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(CacheUnwritable, match=CACHE_VARIABLE):
        KernelCache(Path("~/.cache/warpwright")).store(IDENTITY, PAYLOAD)
    assert not Path("~").exists()


def test_the_folder_follows_the_variable_then_xdg_then_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    assert default_folder() == tmp_path / ".cache" / "warpwright"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder() == tmp_path / "xdg" / "warpwright"
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "mine"))
    assert default_folder() == tmp_path / "mine"


def _write_repeatedly(folder: str, byte: int) -> None:
    store = KernelCache(Path(folder))
    for _ in range(40):
        store.store(IDENTITY, bytes([byte]) * 100_000)


def test_concurrent_writers_never_show_a_reader_a_mixed_entry(cache: KernelCache) -> None:
    context = multiprocessing.get_context("spawn")
    cache.store(IDENTITY, b"\0" * 100_000)
    writers = [
        context.Process(target=_write_repeatedly, args=(str(cache.folder), byte)) for byte in (1, 2)
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        seen = cache.load(IDENTITY)
        assert seen is not None
        assert len(seen) == 100_000
        assert len(set(seen)) == 1
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert os.listdir(cache.folder / "kernels") == [cache.path(IDENTITY).name]
