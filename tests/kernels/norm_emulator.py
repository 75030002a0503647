"""norm_activation kernels on the CPU: their own CUDA sources, compiled as C++ over fibers."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from kernels.norm.compile import NormKey, headers, instantiation

BODIES = {
    "Bf16::pair": """
    u32 x = __float_as_uint(low), y = __float_as_uint(high);
    auto rounded = [](float value, u32 bits) -> u32 {
      if (value != value) return 0x7fff;
      return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    };
    return rounded(low, x) | rounded(high, y) << 16;""",
    "Fp16::widened": """
    _Float16 value;
    std::memcpy(&value, &half, 2);
    return static_cast<float>(value);""",
    "Fp16::pair": """
    const _Float16 both[2] = {static_cast<_Float16>(low), static_cast<_Float16>(high)};
    u32 word;
    std::memcpy(&word, both, 4);
    if (low != low) word = (word & 0xffff0000u) | 0x7fff;
    if (high != high) word = (word & 0xffffu) | 0x7fff0000u;
    return word;""",
    "load_shared": """
  Vector<16> v;
  std::memcpy(&v, emulated::machine->smem.data() + address, 16);
  return v;""",
    "store_shared": """
  std::memcpy(emulated::machine->smem.data() + address, &v, 16);""",
    "clamped": """
  if (x != x) return x;
  return x > bound ? bound : x < -bound ? -bound : x;""",
    "arrive": """
  emulated::machine->mbarriers.at(barrier).arrive();
  ++emulated::machine->progress;""",
    "wait": """
  ptx::barrier_wait(barrier, parity);""",
    "sync_known": """
  ptx::named_barrier(kId, threads);""",
    "named_arrive": """
  __syncwarp();
  if (id >= 16) throw emulated::Fault{"a named barrier beyond 15"};
  emulated::machine->named[id].come_in(threads);
  ++emulated::machine->progress;""",
    "bulk_load": """
  if (to % 16 || reinterpret_cast<u64>(from) % 16 || bytes % 16 || bytes == 0) __trap();
  const char* start = static_cast<const char*>(from);
  emulated::machine->landings.push_back({to, start, bytes, barrier, -1});""",
    "bulk_store": """
  if (from % 16 || reinterpret_cast<u64>(to) % 16 || bytes % 16) __trap();
  std::memcpy(to, emulated::machine->smem.data() + from, bytes);""",
    "async_load": """
  emulated::machine->landings.push_back(
      {to, static_cast<const char*>(from), 16, 0, emulated::machine->current});""",
    "arrive_when_loaded": """
  emulated::machine->landings.push_back(
      {0, nullptr, 0, barrier, emulated::machine->current});""",
}
"""What functions made of PTX do, by name; members by their class."""

LOADS = """
template <int kBytes>
inline Vector<kBytes> load_once(const Vector<kBytes>* from) { return *from; }
template <int kBytes>
inline Vector<kBytes> load_cached(const Vector<kBytes>* from) { return *from; }
"""


def _end_of_block(text: str, start: int) -> int:
    """The place after the brace that closes the one at ``start``."""
    depth = 0
    for index in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return index + 1
    raise ValueError("unbalanced braces")


def _without_ptx(text: str, used: set[str]) -> str:
    """A header with the bodies of functions made of PTX replaced by those of BODIES."""
    loads = re.search(
        r"#define WARPWRIGHT_NORM_LOAD.*?#undef WARPWRIGHT_NORM_LOAD", text, re.DOTALL
    )
    if loads:
        text = text[: loads.start()] + LOADS + text[loads.end() :]
    at = 0
    while (found := re.search(r"asm(?: volatile)?\(", text[at:])) is not None:
        place = at + found.start()
        heads = list(re.finditer(r"(\w+)\([^(){}]*\)(?: const)? \{", text[:place]))
        head = next(m for m in reversed(heads) if m[1] not in ("if", "for", "while"))
        classes = re.findall(r"^struct (\w+) \{", text[: head.start()], re.MULTILINE)
        opening = head.end() - 1
        name = next(
            n for n in (f"{classes[-1]}::{head[1]}" if classes else "", head[1]) if n in BODIES
        )
        used.add(name)
        end = _end_of_block(text, opening)
        text = f"{text[:opening]}{{{BODIES[name]}\n}}{text[end:]}"
        at = opening
    return text


class Emulated:
    """A kernel compiled for the CPU in ``folder``."""

    def __init__(self, key: NormKey, folder: Path) -> None:
        used: set[str] = set()
        parts = {n: _without_ptx(t, used) for n, t in headers().items() if n != "ptx.cuh"}
        assert used == set(BODIES)
        order = ("types", "math", "rows", "barrier", "ring", "stream")
        assert len(parts) == len(order)
        whole = "\n".join(parts[f"norm_{name}.cuh"] for name in order)
        whole = re.sub(r'^#(include "|pragma).*$', "", whole, flags=re.MULTILINE)
        kernel = instantiation(key).partition("\n")[2]
        source = Path(__file__).with_suffix(".cpp").read_text("utf-8")
        source = source.replace("//HEADERS//", whole).replace("//KERNEL//", kernel)
        path = folder / f"{key.name}.cpp"
        path.write_text(source, "utf-8")
        library = path.with_suffix(".so")
        subprocess.run(
            [
                "g++",
                "-std=c++17",
                "-O1",
                "-w",
                "-ffp-contract=off",
                "-shared",
                "-fPIC",
                "-o",
                library,
                path,
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        self._run = ctypes.CDLL(str(library)).emulate

    def run(
        self, block: np.ndarray[Any, Any], grid: int, threads: int, smem_bytes: int, seed: int
    ) -> str:
        """Run a grid; what went wrong, empty where nothing did."""
        words = ctypes.create_string_buffer(200)
        code = self._run(
            ctypes.c_void_p(block.ctypes.data),
            block.nbytes,
            grid,
            threads,
            smem_bytes,
            seed,
            words,
            200,
        )
        return words.value.decode() if code == 1 else "" if code == 0 else f"code {code}"
