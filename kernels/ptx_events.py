"""The instructions that the PTX machine knows beside arithmetic, and what an observer is told.

Opcodes are spelled out: one with another qualifier is another instruction, and unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from kernels.ptx_arithmetic import OPERATIONS, Values
from kernels.ptx_parser import Instruction
from kernels.ptx_registers import Lanes


@dataclass(frozen=True, slots=True)
class Event:
    """An instruction that some threads execute together, and its integer operands.

    ``values`` holds a row of one uint64 per thread for each operand that the instruction reads
    as an integer, an address before its coordinates; only those of ``lanes`` count.
    """

    instruction: Instruction
    lanes: Lanes
    values: tuple[Values, ...]


Observer = Callable[[Event], int | None]
"""Called with each event. For a load: the value that all its threads read, None if opaque."""


@dataclass(frozen=True, slots=True)
class Observed:
    """How an event's operands are read: which are integer inputs, whether the first is a result,
    whether a whole warp executes it at once, and which is a value that comes last among the
    event's, OPAQUE where it is not known."""

    inputs: tuple[int, ...] = ()
    result: bool = False
    whole_warp: bool = False
    stored: int | None = None


LOAD_TILE = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
MULTICAST_TILE = f"{LOAD_TILE}.multicast::cluster"
TELLING = ".L2::cache_hint"
"""What follows the name of either load where it has a cache policy, its last operand."""
LOAD_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
STORE_BULK = "cp.async.bulk.global.shared::cta.bulk_group"
LOAD_ASYNC = "cp.async.cg.shared.global"
ARRIVE_LOADED = "cp.async.mbarrier.arrive.noinc.shared.b64"
STORE_TILE = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
OBSERVED = {
    "mbarrier.init.shared::cta.b64": Observed((0, 1)),
    "mbarrier.arrive.shared::cta.b64": Observed((1,)),
    "mbarrier.arrive.shared::cluster.b64": Observed((1,)),
    "mbarrier.arrive.shared.b64": Observed((1,), result=True),
    ARRIVE_LOADED: Observed((0,)),
    "mbarrier.arrive.expect_tx.shared::cta.b64": Observed((1, 2)),
    "fence.mbarrier_init.release.cluster": Observed(),
    "fence.proxy.async.shared::cta": Observed(),
    "fence.acq_rel.gpu": Observed(),
    "bar.sync": Observed((0, 1), whole_warp=True),
    "bar.arrive": Observed((0, 1), whole_warp=True),
    "barrier.cluster.arrive.release": Observed(),
    "barrier.cluster.wait.acquire": Observed(),
    "griddepcontrol.launch_dependents": Observed(),
    "griddepcontrol.wait": Observed(),
    LOAD_TILE: Observed((0, 1, 2)),
    MULTICAST_TILE: Observed((0, 1, 2, 3)),
    LOAD_TILE + TELLING: Observed((0, 1, 2, 3)),
    MULTICAST_TILE + TELLING: Observed((0, 1, 2, 3, 4)),
    STORE_TILE: Observed((0, 1)),
    LOAD_BULK: Observed((0, 1, 2, 3)),
    STORE_BULK: Observed((0, 1, 2)),
    LOAD_ASYNC: Observed((0, 1, 2)),
    "cp.async.bulk.commit_group": Observed(),
    "cp.async.bulk.wait_group.read": Observed((0,)),
    "prefetch.tensormap": Observed((0,)),
    "wgmma.fence.sync.aligned": Observed(whole_warp=True),
    "wgmma.commit_group.sync.aligned": Observed(whole_warp=True),
    "wgmma.wait_group.sync.aligned": Observed((0,), whole_warp=True),
    "stmatrix.sync.aligned.m8n8.x2.shared.b16": Observed((0,), whole_warp=True),
    "stmatrix.sync.aligned.m8n8.x4.shared.b16": Observed((0,), whole_warp=True),
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16": Observed((1,), result=True, whole_warp=True),
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16": Observed((1,), result=True, whole_warp=True),
    "setmaxnreg.inc.sync.aligned.u32": Observed((0,), whole_warp=True),
    "setmaxnreg.dec.sync.aligned.u32": Observed((0,), whole_warp=True),
    "ld.shared.u16": Observed((1,), result=True),
    "ld.shared.u32": Observed((1,), result=True),
    "ld.shared.v2.f32": Observed((1,), result=True),
    "st.shared.u16": Observed((0,)),
    "st.shared.u32": Observed((0,), stored=1),
    "st.shared.v2.f32": Observed((0,)),
    "ld.global.u16": Observed((1,), result=True),
    "ld.global.u32": Observed((1,), result=True),
    "ld.global.cg.v4.f32": Observed((1,), result=True),
    "st.global.cg.v4.f32": Observed((0,)),
    "st.global.u16": Observed((0,)),
    "st.global.u32": Observed((0,)),
    "atom.global.inc.u32": Observed((1, 2), result=True),
}
ACCESS = re.compile(
    r"(?P<kind>ld|st)\.(?P<space>shared|global)(?:\.nc)?(?:\.L1::no_allocate)?"
    r"(?:\.v(?P<count>2|4))?\.(?:[ub]|f(?=32))(?P<bits>16|32)"
)
"""Plain accesses of other widths and cache policies than those above."""
LOADS, STORES = Observed((1,), result=True), Observed((0,))
MMA = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k16\.f32\.(bf16\.bf16|f16\.f16)")
PRODUCT = Observed((1, 2, 3, 4, 5, 6, 7), whole_warp=True)
# Opcode to the type of its result, which is opaque.
FLOATS = {
    **dict.fromkeys(
        (
            *("add.f32", "sub.f32", "mul.f32", "fma.rn.f32", "div.approx.f32", "rcp.rn.f32"),
            *("rsqrt.approx.f32", "ex2.approx.f32", "ex2.approx.ftz.f32", "neg.f32", "abs.f32"),
            *("copysign.f32", "min.NaN.f32", "max.NaN.f32", "selp.f32"),
            *("cvt.f32.f16", "cvt.rn.f32.u32"),
        ),
        "f32",
    ),
    "cvt.rn.bf16x2.f32": "b32",
    "cvt.rn.f16x2.f32": "b32",
    **dict.fromkeys((f"setp.{c}.f32" for c in ("lt", "le", "gt", "ge")), "pred"),
    **dict.fromkeys((f"setp.{c}.f32" for c in ("ltu", "leu", "gtu", "geu")), "pred"),
}
# Opcode to a value that stands for the policy: hardware's own is opaque, and only moved.
POLICIES = {
    f"createpolicy.fractional.L2::evict_{name}.b64": (1 << 55) + number
    for number, name in enumerate(("first", "last"))
}
LOAD_PARAMETER = re.compile(
    r"ld\.param(?:\.v(?P<count>2|4))?\.(?P<kind>[usb](?P<bits>32|64)|u(?P<narrow>8|16)|f32)"
)
TRY_WAIT = "mbarrier.try_wait.parity.shared::cta.b64"
MAP_TO_CTA = "mapa.shared::cluster.u32"
CONTROL = (
    "bra",
    "bra.uni",
    "ret",
    "trap",
    "bar.warp.sync",
    "elect.sync",
    "shfl.sync.idx.b32",
    "shfl.sync.bfly.b32",
    TRY_WAIT,
    MAP_TO_CTA,
)


def observed(opcode: str) -> Observed:
    """How the operands of an event are read."""
    if MMA.fullmatch(opcode):
        return PRODUCT
    if opcode in OBSERVED:
        return OBSERVED[opcode]
    return LOADS if opcode.startswith("ld.") else STORES


@cache
def is_known(opcode: str) -> bool:
    """Whether the machine can run an instruction."""
    return bool(
        opcode in OPERATIONS
        or opcode in OBSERVED
        or opcode in FLOATS
        or opcode in POLICIES
        or opcode in CONTROL
        or MMA.fullmatch(opcode)
        or ACCESS.fullmatch(opcode)
        or LOAD_PARAMETER.fullmatch(opcode)
    )
