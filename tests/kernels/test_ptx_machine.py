"""The PTX interpreter on programs of a few lines: exact integers, and no guesses."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import ptx_machine
from kernels.ptx_events import LOAD_TILE, MULTICAST_TILE, POLICIES, TELLING, Event
from kernels.ptx_machine import Machine
from kernels.ptx_parser import PtxError, parse
from kernels.ptx_registers import CTA_WINDOW, PARAMETER_BASE, SHARED_BASE, Launch

MODULE = """//
.version 9.0
.target sm_90a
.address_size 64

.extern .shared .align 1024 .b8 smem[];

.visible .entry kernel(
	.param .align 64 .b8 map[128],
	.param .align 8 .b8 args[24]
)
.maxntid 64, 1, 1
{
	.reg .pred 	%p<9>;
	.reg .b16 	%rs<9>;
	.reg .f32 	%f<9>;
	.reg .b32 	%r<40>;
	.reg .b64 	%rd<40>;
BODY
	ret;
}
"""
SHOW = "fence.acq_rel.gpu;"
A_BARRIER = "mov.u32 %r20, smem; mov.u32 %r21, 1;"
TRY = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r20], %r21;"


def run(
    body: str,
    *,
    threads: int = 32,
    args: bytes = bytes(24),
    value: int | None = None,
    cluster: int = 1,
) -> Any:
    """(opcode, lanes, values of the lowest lane) of every event but the exits."""
    seen = []

    def observe(event: Event) -> int | None:
        if event.instruction.opcode != "ret":
            lanes = np.flatnonzero(event.lanes).tolist()
            values = [int(row[lanes[0]]) for row in event.values]
            seen.append((event.instruction.opcode, lanes, values))
        return value if event.instruction.opcode.startswith("ld.shared") else None

    launch = Launch(0, 1, threads, 4096, (None, args), cluster)
    Machine(parse(MODULE.replace("BODY", body)), launch, observe).run()
    return seen


def result(body: str, register: str, args: bytes = bytes(24)) -> int:
    """What a register holds in the end, shown as an address that is prefetched."""
    ((_, _, (value,)),) = run(f"{body} prefetch.tensormap [{register}];", args=args)
    return value


# ---- arithmetic

EDGES = (0, 1, 2, 3, 5, 7, 31, 32, 33, 63, 64, 100, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
WIDE = (*EDGES, 2**32, 2**33 + 7, 2**63 - 1, 2**63, 2**64 - 1)


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def towards_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def insert(a: int, b: int, at: int, length: int) -> int:
    at, length = at & 255, length & 255
    taken = [i for i in range(length) if at + i < 32]
    for i in taken:
        b = b & ~(1 << at + i) | (a >> i & 1 if i < 32 else 0) << at + i
    return b


def permute(a: int, b: int, selector: int) -> int:
    pool = struct.pack("<II", a, b)
    chosen = []
    for i in range(4):
        control = selector >> 4 * i & 15
        byte = pool[control & 7]
        chosen.append((255 if byte & 128 else 0) if control & 8 else byte)
    return int.from_bytes(bytes(chosen), "little")


# Opcode: bits of the inputs, whether they are signed, bits of the result, what it is.
EXACT: dict[str, tuple[int, bool, int, Callable[..., int]]] = {
    "add.s32": (32, True, 32, lambda a, b: a + b),
    "add.s64": (64, True, 64, lambda a, b: a + b),
    "sub.s32": (32, True, 32, lambda a, b: a - b),
    "mul.lo.s32": (32, True, 32, lambda a, b: a * b),
    "mul.lo.s64": (64, True, 64, lambda a, b: a * b),
    "mul.wide.s32": (32, True, 64, lambda a, b: a * b),
    "mul.wide.u32": (32, False, 64, lambda a, b: a * b),
    "mul.hi.s32": (32, True, 32, lambda a, b: a * b >> 32),
    "mul.hi.u32": (32, False, 32, lambda a, b: a * b >> 32),
    "mad.lo.s32": (32, True, 32, lambda a, b, c: a * b + c),
    "min.s32": (32, True, 32, min),
    "min.u32": (32, False, 32, min),
    "max.s32": (32, True, 32, max),
    "div.s32": (32, True, 32, towards_zero),
    "div.u32": (32, False, 32, towards_zero),
    "rem.s32": (32, True, 32, lambda a, b: a - towards_zero(a, b) * b),
    "rem.u32": (32, False, 32, lambda a, b: a % b),
    "and.b32": (32, False, 32, lambda a, b: a & b),
    "and.b64": (64, False, 64, lambda a, b: a & b),
    "or.b32": (32, False, 32, lambda a, b: a | b),
    "or.b64": (64, False, 64, lambda a, b: a | b),
    "xor.b32": (32, False, 32, lambda a, b: a ^ b),
    "not.b32": (32, False, 32, lambda a: ~a),
    "mov.b32": (32, False, 32, lambda a: a),
    "mov.b64": (64, False, 64, lambda a: a),
    "cvt.s64.s32": (32, True, 64, lambda a: a),
    "cvt.u64.u32": (32, False, 64, lambda a: a),
    "cvt.u32.u64": (64, False, 32, lambda a: a),
    "bfi.b32": (32, False, 32, insert),
    "prmt.b32": (32, False, 32, permute),
}
SHIFTS: dict[str, tuple[int, bool, Callable[[int, int], int]]] = {
    "shl.b32": (32, False, lambda a, by: a << by),
    "shl.b64": (64, False, lambda a, by: a << by),
    "shr.s32": (32, True, lambda a, by: a >> by),
    "shr.u32": (32, False, lambda a, by: a >> by),
    "shr.u64": (64, False, lambda a, by: a >> by),
    "shr.s64": (64, True, lambda a, by: a >> by),
}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def packed(values: tuple[int, ...], bits: int) -> bytes:
    code = {32: "I", 64: "Q"}[bits]
    return struct.pack(f"<{len(values)}{code}", *values).ljust(24, b"\0")[:24]


def loads(count: int, bits: int) -> str:
    name = {32: "r", 64: "rd"}[bits]
    return " ".join(
        f"ld.param.u{bits} %{name}{i + 1}, [args+{i * bits // 8}];" for i in range(count)
    )


def computed(opcode: str, values: tuple[int, ...], bits: int, result_bits: int) -> int:
    name = {32: "r", 64: "rd"}[bits]
    operands = ", ".join(f"%{name}{i + 1}" for i in range(len(values)))
    target = {32: "%r30", 64: "%rd30"}[result_bits]
    body = f"{loads(len(values), bits)} {opcode} {target}, {operands};"
    return result(body, target, packed(values, bits))


@pytest.mark.parametrize("opcode", EXACT)
def test_integers_are_computed_exactly(opcode: str) -> None:
    bits, has_sign, result_bits, function = EXACT[opcode]
    inputs = function.__code__.co_argcount if hasattr(function, "__code__") else 2
    edges = EDGES if bits == 32 else WIDE

    @settings(deadline=None)
    @given(values=st.tuples(*[st.sampled_from(edges) | st.integers(0, 2**bits - 1)] * inputs))
    def holds(values: tuple[int, ...]) -> None:
        if opcode.startswith(("div", "rem")) and not values[1]:
            with pytest.raises(PtxError, match="division by zero"):
                computed(opcode, values, bits, result_bits)
            return
        arguments = [signed(value, bits) for value in values] if has_sign else values
        expected = function(*arguments) & (1 << result_bits) - 1
        assert computed(opcode, values, bits, result_bits) == expected

    holds()


@pytest.mark.parametrize("opcode", SHIFTS)
def test_shifts_by_the_width_or_more_leave_only_fill(opcode: str) -> None:
    bits, has_sign, function = SHIFTS[opcode]
    name = {32: "r", 64: "rd"}[bits]
    for value, by in itertools.product((1, 2**bits - 1, 2 ** (bits - 1) + 5), (0, 1, 31, 32, 63)):
        args = packed((value,), bits)
        body = f"{loads(1, bits)} {opcode} %{name}30, %{name}1, {by};"
        given_ = signed(value, bits) if has_sign else value
        assert result(body, f"%{name}30", args) == function(given_, by) & (1 << bits) - 1


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("name", COMPARE)
def test_comparisons_know_the_sign(name: str, kind: str) -> None:
    bits = int(kind[1:])
    register = {32: "r", 64: "rd"}[bits]
    for a, b in itertools.product((0, 1, 2 ** (bits - 1), 2**bits - 1), repeat=2):
        body = (
            f"{loads(2, bits)} setp.{name}.{kind} %p1, %{register}1, %{register}2;"
            "selp.u32 %r30, 7, 9, %p1;"
        )
        pair = (signed(a, bits), signed(b, bits)) if kind[0] == "s" else (a, b)
        expected = 7 if COMPARE[name](*pair) else 9
        assert result(body, "%r30", packed((a, b), bits)) == expected


@pytest.mark.parametrize("a", [0, 1, 0x1FFFF, 0xABCD1234])
@pytest.mark.parametrize("b", [3, 0x8000, 0xFFFF])
def test_sixteen_bits_are_computed_exactly(a: int, b: int) -> None:
    body = (
        f"{loads(1, 32)} cvt.u16.u32 %rs1, %r1; mov.u16 %rs2, {b}; and.b16 %rs3, %rs1, %rs2;"
        "mul.wide.u16 %r30, %rs3, %rs2;"
    )
    assert result(body, "%r30", packed((a,), 32)) == (a & 0xFFFF & b) * b


def test_floats_are_compared_where_they_are_parameters_or_constants() -> None:
    args = struct.pack("<ffff8x", 1.5, -0.0, 0.0, math.nan)
    body = "".join(f"ld.param.f32 %f{i}, [args+{4 * i}];" for i in range(4))
    for name, a, b, holds in (
        ("eq", "%f0", "0f3FC00000", True),
        ("eq", "%f1", "%f2", True),
        ("neu", "%f0", "%f2", True),
        ("eq", "%f3", "%f3", False),
        ("neu", "%f3", "%f3", True),
    ):
        shown = f"setp.{name}.f32 %p1, {a}, {b}; selp.u32 %r30, 1, 0, %p1;"
        assert result(body + shown, "%r30", args) == holds
    # An integer's bits are a float's, and the other way round.
    both = "ld.param.u32 %r1, [args]; mov.b32 %f5, %r1; mov.f32 %f6, %f5; mov.b32 %r30, %f6;"
    assert result(both, "%r30", args) == int.from_bytes(args[:4], "little")


def test_addresses_are_those_of_the_launch() -> None:
    assert result("mov.u32 %r1, smem;", "%r1") == SHARED_BASE
    assert result("mov.b64 %rd1, args; cvta.param.u64 %rd2, %rd1;", "%rd2") == PARAMETER_BASE + 128
    assert result("mov.u32 %r1, %dynamic_smem_size;", "%r1") == 4096
    assert result("mov.b64 %rd1, args; ld.param.u32 %r1, [%rd1+4];", "%r1", b"abcdefgh" * 3) == (
        int.from_bytes(b"efgh", "little")
    )


# ---- threads


def test_threads_that_part_meet_again() -> None:
    body = f"""
	mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.ne.s32 %p1, %r2, 0;
	@%p1 bra $ODD;
	{SHOW}
	bra.uni $BOTH;
$ODD:
	fence.proxy.async.shared::cta;
$BOTH:
	bar.warp.sync -1;
"""
    even, odd, both = run(body)
    assert (even[1], odd[1]) == (list(range(0, 32, 2)), list(range(1, 32, 2)))
    assert both[:2] == ("bar.warp.sync", list(range(32)))


def test_each_thread_runs_its_own_number_of_turns() -> None:
    body = f"""
	mov.u32 %r1, %tid.x; mov.u32 %r2, 0;
$LOOP:
	add.s32 %r2, %r2, 1; {SHOW}
	setp.lt.u32 %p1, %r2, %r1;
	@%p1 bra $LOOP;
	bar.sync 0;
"""
    events = run(body, threads=64)
    assert [len(lanes) for _, lanes, _ in events] == [64, *range(62, 0, -1), 64]


def test_a_predicate_chooses_threads() -> None:
    body = f"mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 3; @%p1 {SHOW} @!%p1 {SHOW}"
    assert [lanes for _, lanes, _ in run(body)] == [[0, 1, 2], list(range(3, 32))]


def test_a_broadcast_gives_each_warp_its_own_lanes_value() -> None:
    body = """
	mov.u32 %r1, %tid.x; mov.u32 %r2, -1;
	shfl.sync.idx.b32 %r3|%p1, %r1, 5, 31, %r2;
	prefetch.tensormap [%r3];
"""
    seen = {}

    def observe(event: Event) -> None:
        if event.values:
            seen["values"] = event.values[0].tolist()

    entry = parse(MODULE.replace("BODY", body))
    Machine(entry, Launch(0, 1, 64, 4096, (None, None)), observe).run()
    assert seen["values"] == [5] * 32 + [37] * 32


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("@%p1 bra $END; bar.sync 0; bra.uni $END; $END:", "1 of the 32 lanes of warp 0"),
        ("@%p1 bar.sync 0;", "differs within a warp"),
        ("@%p1 bra $END; elect.sync _|%p2, 0xffffffff; $END:", "never come"),
    ],
)
def test_part_of_a_warp_can_not_do_what_takes_a_whole_one(body: str, words: str) -> None:
    start = "mov.u32 %r1, %tid.x; setp.ne.s32 %p1, %r1, 3;"
    with pytest.raises(PtxError, match=words):
        run(start + body)


# ---- clusters


def test_a_mapped_address_lies_in_another_ctas_window() -> None:
    body = "mov.u32 %r1, smem; mapa.shared::cluster.u32 %r2, %r1, 1; prefetch.tensormap [%r2];"
    ((_, _, (address,)),) = run(body, cluster=2)
    assert divmod(address, CTA_WINDOW) == (1 + 1, SHARED_BASE)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("mov.u32 %r1, smem; mapa.shared::cluster.u32 %r2, %r1, 2;", "not in the cluster"),
        ("mov.u32 %r1, -1; mapa.shared::cluster.u32 %r2, %r1, 1;", "no address of this CTA"),
    ],
)
def test_what_can_not_be_mapped_is_an_error(body: str, words: str) -> None:
    with pytest.raises(PtxError, match=words):
        run(body, cluster=2)


def test_a_kernel_can_ask_for_its_clusters_size() -> None:
    body = "mov.u32 %r1, %cluster_nctaid.x; prefetch.tensormap [%r1];"
    assert [run(body, cluster=size)[0][2] for size in (1, 2)] == [[1], [2]]


A_LOAD = (
    "mov.u32 %r1, 7; mov.u32 %r2, 8; mov.u32 %r3, 9; mov.u32 %r4, 10; mov.u16 %rs1, 3;"
    "mov.b64 %rd1, args;"
)
LAST = "createpolicy.fractional.L2::evict_last.b64"


def test_a_multicast_shows_its_ctas_and_then_its_policy_after_what_other_loads_have() -> None:
    body = (
        f"{A_LOAD} {LAST} %rd2, 1.0; {MULTICAST_TILE}{TELLING} [%r1], [%rd1, {{%r2, %r3}}], [%r4], "
    )
    ((_, _, values),) = run(f"{body} %rs1, %rd2;")
    assert values == [7, PARAMETER_BASE + 128, 8, 9, 10, 3, POLICIES[LAST]]


# ---- the L2, and the launch before


def test_a_load_shows_the_policy_that_its_threads_have() -> None:
    body = f"""
	{A_LOAD} mov.u32 %r5, %tid.x; setp.lt.u32 %p1, %r5, 4;
	@%p1 bra $FIRST;
	createpolicy.fractional.L2::evict_last.b64 %rd2, 1.0;
	bra.uni $LOAD;
$FIRST:
	createpolicy.fractional.L2::evict_first.b64 %rd2, 0f3F800000;
$LOAD:
	mov.b64 %rd3, %rd2;
	{LOAD_TILE}{TELLING} [%r1], [%rd1, {{%r2, %r3}}], [%r4], %rd3;
"""
    seen: list[list[int]] = []

    def observe(event: Event) -> None:
        if event.instruction.opcode == LOAD_TILE + TELLING:
            seen.append(event.values[-1].tolist())

    entry = parse(MODULE.replace("BODY", body))
    Machine(entry, Launch(0, 1, 32, 4096, (None, bytes(24))), observe).run()
    last, first = (
        POLICIES[f"createpolicy.fractional.L2::evict_{name}.b64"] for name in ("last", "first")
    )
    assert seen == [[first] * 4 + [last] * 28]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"{LAST} %rd2, 0.5;", "no policy for all"),
        (f"{LAST} %rd2, 1;", "no policy for all"),
        (f"{LAST} %rd2, %f1;", "no policy for all"),
        (f"{LAST} %r2, 1.0;", "unknown destination"),
        (f"{LAST}.L2::evict_first %rd2, 1.0;", "unknown instruction"),
        ("createpolicy.range.global.L2::evict_last.b64 %rd2, [%rd1], 8, 8;", "unknown instruction"),
        (f"{LOAD_TILE}{TELLING} [%r1], [%rd1, {{%r2, %r3}}], [%r4], %rd9;", "opaque"),
        ("createpolicy.fractional.L2::evict_normal.b64 %rd2, 1.0;", "unknown instruction"),
    ],
)  # fmt: skip
def test_a_policy_that_can_not_be_told_is_an_error(body: str, words: str) -> None:
    with pytest.raises(PtxError, match=words):
        run(f"{A_LOAD} {body}")


def test_what_concerns_other_launches_is_shown_thread_by_thread() -> None:
    body = """
	griddepcontrol.launch_dependents;
	mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 5;
	@%p1 griddepcontrol.wait;
"""
    assert run(body) == [
        ("griddepcontrol.launch_dependents", list(range(32)), []),
        ("griddepcontrol.wait", [5], []),
    ]


def test_a_decimal_is_the_float_that_it_means() -> None:
    for decimal, bits in (("1.0", "0f3F800000"), ("-0.25", "0fBE800000"), ("0.1", "0f3DCCCCCD")):
        body = f"setp.eq.f32 %p1, {decimal}, {bits}; selp.u32 %r30, 7, 9, %p1;"
        assert result(body, "%r30") == 7


# ---- waits


def test_a_loop_of_try_wait_is_one_wait() -> None:
    ((opcode, lanes, values),) = run(f"{A_BARRIER} $AGAIN: {TRY} @!%p1 bra $AGAIN;")
    assert opcode.startswith("mbarrier.try_wait")
    assert (lanes, values) == (list(range(32)), [SHARED_BASE, 1])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"{A_BARRIER} {TRY}", "not repeated"),
        (f"{A_BARRIER} {TRY} {SHOW}", "not repeated"),
        (f"{A_BARRIER} $A: {TRY} add.s32 %r20, %r20, 8; @!%p1 bra $A;", "not the wait that failed"),
        (f"{A_BARRIER} {TRY} {TRY}", "not the wait that failed"),
    ],
)
def test_a_try_wait_that_does_not_wait_is_an_error(body: str, words: str) -> None:
    with pytest.raises(PtxError, match=words):
        run(body)


# ---- no guesses

OPAQUE = "ld.global.cg.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];"
START = "mov.u32 %r9, smem; mov.b64 %rd1, args; "
MMA = (
    "setp.eq.u32 %p2, 0, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
    "{%f1, %f2, %f3, %f4}, %rd1, %rd1, %p2, 1, 1, 0, 0;"
)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"setp.eq.s32 %p1, %r1, 0; @%p1 bra $END; {SHOW} $END:", "predicate depends on an opaque"),
        ("@%p1 bar.sync 0;", "predicate depends on an opaque value"),
        ("bar.sync %r1;", "depends on an opaque value"),
        (
            "ld.shared.u32 %r1, [%r9]; add.s32 %r2, %r1, 1; and.b32 %r3, %r2, 0; bar.sync %r3;",
            "depends on an opaque value",
        ),
        ("atom.global.inc.u32 %r1, [%rd1], 3; bar.sync %r1;", "depends on an opaque value"),
        ("cvt.rn.bf16x2.f32 %r9, %f1, %f2; bar.sync %r9;", "depends on an opaque value"),
        ("mov.f32 %f1, 0f00000000; add.f32 %f1, %f1, %f1; setp.eq.f32 %p1, %f1, %f1; @%p1 ret;",
         "predicate depends on an opaque value"),
        ("mov.f32 %f1, 0f00000000; ld.shared.v2.f32 {%f1, %f2}, [%r9]; mov.b32 %r1, %f1;"
         "bar.sync %r1;", "depends on an opaque value"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r2}, [%r9]; bar.sync %r1;",
         "depends on an opaque value"),
        ("mov.b32 {%rs1, %rs2}, %r9; mul.wide.u16 %r1, %rs1, %rs1; bar.sync %r1;",
         "depends on an opaque value"),
        (f"mov.f32 %f1, 0f00000000; {MMA} setp.eq.f32 %p1, %f1, 0f00000000; @%p1 ret;",
         "predicate depends on an opaque value"),
        ("add.s32 %r1, %f1, 1;", "not understood"),
        ("setp.eq.f32 %p1, %r9, %r9;", "not understood"),
        ("mov.f32 %r1, 0f00000000;", "unknown destination"),
        ("ld.param.f32 %r1, [args];", "not understood"),
        ("bar.sync %f1;", "not understood"),
        ("mov.f32 %f1, 0d0000000000000000;", "no register in scope"),
        ("ld.param.u32 %r1, [map];", "no known parameter"),
        ("ld.param.u32 %r1, [args+24];", "no known parameter"),
        ("ld.param.u32 %r1, [args+2];", "no known parameter"),
        ("setp.ne.s32 %p1, %r9, 0; @%p1 bra $END; popc.b32 %r1, %r9; $END:", "popc.b32"),
        ("add.s32.sat %r1, %r9, 1;", r"unknown instruction add\.s32\.sat"),
        ("mbarrier.arrive.shared::cta.b64 %rd2, [%r9];", "unknown destination"),
        ("mbarrier.arrive.release.cta.shared::cta.b64 _, [%r9];", "unknown instruction"),
        ("add.s32 %r1, %rd1, 1;", "operand of type u32 is not understood"),
        ("add.s32 %rd2, %r9, 1;", "unknown destination"),
        ("add.s32 %r1, %r9, 0f00000000;", "not understood"),
        ("add.s32 %r1, %r9, 4294967296;", "not understood"),
        ("add.s32 %r1, %r9;", "takes 2 inputs"),
        ("mov.u32 %r1, %laneid;", "no register in scope"),
        ("bar.warp.sync 15;", "only whole warps"),
        ("shfl.sync.idx.b32 %r1|%p1, %r9, 0, 15, -1;", "no broadcast"),
        ("trap;", "refuses this launch"),
        ("$L: bra.uni $L;", "no end after"),
    ],
)  # fmt: skip
def test_what_can_not_be_told_is_an_error(
    body: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ptx_machine, "STEPS_MAX", 1000)
    with pytest.raises(PtxError, match=words):
        run(START + body)


def test_a_branch_over_arithmetic_by_an_opaque_predicate_leaves_what_it_skips_opaque() -> None:
    body = """setp.lt.f32 %p1, %f1, 0f00000000; mov.u32 %r1, 5; mov.u32 %r2, 7;
        @%p1 bra $L; mov.u32 %r1, 6; add.f32 %f2, %f1, %f1; $L: bar.sync USED;"""
    assert run(body.replace("USED", "%r2")) == [("bar.sync", list(range(32)), [7])]
    with pytest.raises(PtxError, match="depends on an opaque value"):
        run(body.replace("USED", "%r1"))
    with pytest.raises(PtxError, match="predicate depends on an opaque value"):
        run(body.replace("USED", "%r2").replace("add.f32 %f2, %f1, %f1;", SHOW))


def test_values_exchanged_between_lanes_stay_opaque() -> None:
    shuffle = "mov.u32 %r3, 1; mov.u32 %r4, 31; mov.u32 %r5, MASK; mov.u32 %r6, 0;"
    shuffle += "shfl.sync.bfly.b32 %r6|%p2, %r6, %r3, %r4, %r5;"
    assert run(shuffle.replace("MASK", "-1") + SHOW)
    with pytest.raises(PtxError, match="depends on an opaque value"):
        run(shuffle.replace("MASK", "-1") + "bar.sync %r6;")
    with pytest.raises(PtxError, match="only whole warps"):
        run(shuffle.replace("MASK", "65535"))


def test_parameters_fill_wider_registers_with_zeros() -> None:
    args = bytes([200, 1, 2, 255, *range(20)])
    body = """mov.b64 %rd1, args; ld.param.u8 %rs1, [%rd1]; ld.param.u32 %rd2, [%rd1];
        mul.wide.u16 %r1, %rs1, %rs1; div.s64 %rd3, %rd2, 2; cvt.u32.u64 %r2, %rd3;
        bar.arrive %r1, %r2;"""
    value = int.from_bytes(args[:4], "little")
    assert run(body, args=args) == [("bar.arrive", list(range(32)), [200 * 200, value // 2])]


def test_an_error_names_its_line() -> None:
    with pytest.raises(PtxError, match=r"PTX line 20: .*vote\.sync"):
        parse_and_load("\n\n\tvote.sync.any.pred %p1, %p2, 0xffffffff;")


def parse_and_load(body: str) -> Machine:
    launch = Launch(0, 1, 32, 0, (None, None))
    return Machine(parse(MODULE.replace("\nBODY", body)), launch, lambda event: None)


def test_a_loaded_value_is_known_where_the_observer_says_so() -> None:
    body = START + "ld.shared.u32 %r1, [%r9]; bar.sync %r1;"
    assert run(body, value=6)[-1] == ("bar.sync", list(range(32)), [6])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("sm_90a", "sm_100a", "not sm_90a"),
        (".address_size 64", ".address_size 32", "64-bit"),
        (".extern", ".shared .align 4 .b8 more[4];\n.extern", "no other"),
        ("BODY", ".local .align 4 .b8 stack[8];", "unknown directive .local"),
        ("BODY", "/* */", "block comments"),
        ("BODY", "bra $NOWHERE;", "unknown label"),
        ("BODY", "$A: $A:", "stands twice"),
        ("BODY", "add.s32 %r99, %r1, 1;", "%r99 is no register"),
        ("BODY", "{ .reg .pred q; } @q bra $END; $END:", "q is no register"),
        ("BODY", ".reg .v4 %v<3>;", "unknown register type"),
        ("BODY", "add.s32 %r1, [%r1 + %r2], 1;", "not understood"),
        ("\tret;\n}", "\tret;\n", "does not end"),
        ("\tret;\n}", "\tret\n}", "does not end"),
        ("\tret;\n}", "\tret;\n}\n.visible .entry other()\n{\n}", "one entry"),
        (".param .align 64 .b8 map[128]", ".param .u32 map", "parameters are not understood"),
    ],
)
def test_a_module_of_another_kind_is_refused(old: str, new: str, words: str) -> None:
    with pytest.raises(PtxError, match=words):
        parse(MODULE.replace(old, new).replace("BODY", ""))


def test_a_scopes_register_hides_the_one_outside() -> None:
    body = """
	setp.eq.u32 %p1, 0, 0;
{
.reg .pred %p1;
setp.ne.u32 %p1, 0, 0;
}
	selp.u32 %r1, 1, 0, %p1;
"""
    assert result(body, "%r1") == 1


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (Launch(0, 1, 40, 0, (None, None)), "whole number of warps"),
        (Launch(0, 1, 32, 0, (None,)), "takes 2 parameters"),
        (Launch(0, 1, 32, 0, (None, bytes(8))), "takes 24 bytes"),
    ],
)
def test_a_launch_that_does_not_fit_is_refused(launch: Launch, words: str) -> None:
    with pytest.raises(PtxError, match=words):
        Machine(parse(MODULE.replace("BODY", "")), launch, lambda event: None)


def test_threads_that_run_off_the_end_are_an_error() -> None:
    entry = parse(MODULE.replace("BODY", SHOW).replace("\tret;\n", ""))
    with pytest.raises(PtxError, match="beyond the last instruction"):
        Machine(entry, Launch(0, 1, 32, 0, (None, None)), lambda event: None).run()
