"""What ptxas says of a kernel that NVRTC compiled: registers, spills, stack, numbered remarks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernels.errors import CompileFailed
from kernels.nvrtc import Build

_ENTRIES = re.compile(r"Compiling entry function '(\w+)'")
_REGISTERS = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_STATIC_SMEM = re.compile(r"(\d+) bytes smem")
# ptxas' numbered remarks: C7508 setmaxnreg ignored, C7510 and C7512 wgmma serialised, C7602
# too few registers. A kernel of this project earns none of them when it is right.
_REMARK = re.compile(r"\((C\d{4})\) (.*)")


@dataclass(frozen=True, slots=True)
class PtxasReport:
    """Registers a thread, barriers a block, bytes of spills (stores and loads), of stack and of
    static shared memory, and ptxas' first numbered remark in words (empty: none)."""

    registers: int
    barriers: int
    spill_bytes: int
    stack_bytes: int
    static_smem_bytes: int
    remark: str


def read_report(name: str, built: Build, entry: str) -> PtxasReport:
    """The report of a compilation that was to make the one entry function ``entry``.

    Raises CompileFailed where it made no cubin or another function.
    """
    found = _REMARK.search(built.log)
    remark = f"ptxas {found[1]}: {found[2].strip()}" if found else ""
    if not built.cubin:
        lines = [line for line in built.log.splitlines() if "error" in line]
        reason = remark or (lines or ["the compiler gave no reason"])[0]
        raise CompileFailed(name, reason, built.log)
    made = _one(_ENTRIES, built.log, name)[1]
    if made != entry:
        raise CompileFailed(name, f"the entry function is {made}, not {entry}", built.log)
    frame = _one(_FRAME, built.log, name)
    static, barriers = _STATIC_SMEM.search(built.log), _BARRIERS.search(built.log)
    return PtxasReport(
        registers=int(_one(_REGISTERS, built.log, name)[1]),
        barriers=int(barriers[1]) if barriers else 0,
        spill_bytes=int(frame[2]) + int(frame[3]),
        stack_bytes=int(frame[1]),
        static_smem_bytes=int(static[1]) if static else 0,
        remark=remark,
    )


def _one(pattern: re.Pattern[str], log: str, name: str) -> re.Match[str]:
    found = list(pattern.finditer(log))
    if len(found) != 1:
        raise CompileFailed(
            name, f"ptxas' report has {len(found)} matches of {pattern.pattern!r}", log
        )
    return found[0]
