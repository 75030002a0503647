"""Where in the sources an instruction of a kernel is, by NVIDIA's nvdisasm."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache

from bench.tools import find_tool
from kernels import nvrtc
from kernels.sources import options

Frame = tuple[str, int]
"""A header's name and a line of it."""
_LINE = re.compile(r'//## File "(?:[^"]*/)?([^"/]+)", line (\d+)')
_CODE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?);")


def frames_of(
    name: str, source: str, headers: Mapping[str, str], arch: str, offsets: Iterable[int]
) -> dict[int, tuple[Frame, ...]] | None:
    """The line of each instruction at ``offsets`` bytes into a unit's one kernel, and those that it
    was inlined at, innermost first; None without nvdisasm.

    The unit is compiled twice, as it ships and with lines. Raises LookupError where that makes
    other code, or no code is at an offset.
    """
    nvdisasm = find_tool("nvdisasm")
    if nvdisasm is None:
        return None
    shipped, lined = (
        _listed(nvdisasm, nvrtc.build(f"{name}.cu", source, headers, used).cubin)
        for used in (options(arch), (*options(arch), "-lineinfo"))
    )
    if shipped.keys() != lined.keys() or any(shipped[at][0] != lined[at][0] for at in shipped):
        raise LookupError(f"{name}: compiled with lines its code is another")
    missing = [f"{at:#x}" for at in offsets if at not in lined]
    if missing:
        raise LookupError(f"{name}: has no instruction at {', '.join(missing)}")
    return {at: lined[at][1] for at in offsets}


@cache
def _listed(nvdisasm: str, cubin: bytes) -> dict[int, tuple[str, tuple[Frame, ...]]]:
    """Every instruction by its offset, and the lines that it comes from."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [nvdisasm, "--print-code", "--print-line-info-inline", file.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    listed: dict[int, tuple[str, tuple[Frame, ...]]] = {}
    frames: list[Frame] = []
    fresh = True  # whether the next line begins another chain
    for line in text.splitlines():
        if found := _LINE.search(line):
            frames = [*([] if fresh else frames), (found[1], int(found[2]))]
            fresh = False
        elif code := _CODE.search(line):
            listed[int(code[1], 16)] = code[2], tuple(frames)
            fresh = True
    return listed


def shown(frames: tuple[Frame, ...], unit: str) -> str:
    """Frames as ``a.cuh:1 in b.cuh:2``, without the unit's own line."""
    return " in ".join(f"{file}:{line}" for file, line in frames if not file.startswith(unit))


def text_at(headers: Mapping[str, str], frame: Frame) -> str:
    """A header's line; empty for a file that is none."""
    file, line = frame
    lines = headers.get(file, "").splitlines()
    return lines[line - 1] if 0 < line <= len(lines) else ""
