"""Seeded pairs of problem and configuration that between them take every branch of the kernel.

Small problems on few SMs: a launch on four CTAs walks many units of work without being large.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Any

from bench.branches import Pair, branches_of
from bench.cover import cover, tally
from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import IllegalConfig
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.families.sm90_gemm import CompileKey
from solver.families.sm90_gemm_operands import copy_pitch
from solver.problem import ELEMENT_BYTES, LAYOUTS, OUT_BYTES, VECTOR_BYTES, Problem, is_k_major

KEYS_MAX = 160
EXTENT_MAX = 1600  # of m and n, but for one pair in LARGE_EVERY
LARGE_EXTENT_MAX = 3000
LARGE_EVERY = 100
DEPTH_MAX = 1800
ATTEMPTS = 100
SMALL_TILES = ((64, 8), (64, 16))  # alone have problems of their size; every eighth pair's
FEW_SMS = (1, 2, 3, 4, 5, 8)


@cache
def legal_keys(device: DeviceProfile) -> tuple[CompileKey, ...]:
    """The compile keys that have a legal configuration on a device."""
    return tuple(
        key
        for dtype, layout in product(ELEMENT_BYTES, LAYOUTS)
        for key in legality.candidate_keys(dtype, layout)
        if _is_legal(key, device)
    )


def _is_legal(key: CompileKey, device: DeviceProfile) -> bool:
    one_tile = Problem(key.tile_m, key.tile_n, key.tile_k, key.dtype, key.layout)
    try:
        legality.check(smallest_config(key), one_tile, device)
    except IllegalConfig:
        return False
    return True


def smallest_config(key: CompileKey) -> Config:
    """The configuration of a key that asks least of a device."""
    return Config(
        family.NAME,
        key.tile_m,
        key.tile_n,
        key.tile_k,
        stages=2 + key.mma_in_flight,
        mma_in_flight=key.mma_in_flight,
        math_warpgroups=key.math_warpgroups,
        register_split=key.register_split,
    )


def _meetings(key: CompileKey) -> set[tuple[Any, ...]]:
    """What a choice of keys should have together: every tile that there is, and each layout
    with every way of tiling."""
    tile, n, k = (key.tile_m, key.math_warpgroups), key.tile_n, key.tile_k
    swizzle, flight, split = int(family.swizzle_n(n)), key.mma_in_flight, key.register_split
    piece = int(family.piece_n(n, family.STAGED_BYTES))
    return {
        ("tile", tile, n),
        ("layout, tile_n", key.layout, n),
        ("layout, tile, swizzle", key.layout, tile, swizzle),
        ("layout, swizzle, way", key.layout, swizzle, flight, split),
        ("piece, way", piece, flight, split),
        ("layout, tile_k", key.dtype, key.layout, k, flight),
        ("tile, way", tile, k, flight, split),
        ("dtype, tile", key.dtype, tile, split),
        ("dtype, tile_n", key.dtype, n),
    }


@cache
def chosen_keys(device: DeviceProfile) -> tuple[CompileKey, ...]:
    """At most KEYS_MAX compile keys that have every meeting of tiles and layouts between them.

    The same ones every time, so that a kernel cache serves from run to run. Raises
    ValueError where KEYS_MAX is not enough.
    """
    legal = list(legal_keys(device))
    random.Random(1).shuffle(legal)  # or ties would all go to the first tile
    chosen = [legal[index] for index in cover([_meetings(key) for key in legal])]
    if len(chosen) > KEYS_MAX:
        raise ValueError(f"{len(chosen)} keys are needed, {KEYS_MAX} are allowed")
    return tuple(chosen)


@dataclass(frozen=True)
class _Draw:
    """One pair of a key, drawn so that it is most likely legal."""

    rng: random.Random
    key: CompileKey
    device: DeviceProfile
    large: bool

    def pair(self) -> Pair:
        """The next pair."""
        rng, key = self.rng, self.key
        sms = self.device.limit("sms")
        sms = sms if self.large or rng.random() < 0.4 else rng.choice(FEW_SMS)
        out = rng.choice([name for name in OUT_BYTES if name != "fp32" or self._even_n])
        m, n = self._rows(), self._columns(out)
        tiles_m, tiles_n = -(-m // key.tile_m), -(-n // key.tile_n)
        cluster_m, cluster_n = rng.choice(
            [
                (m, n)
                for m, n in family.CLUSTERS
                if tiles_m % m == 0 and tiles_n % n == 0 and m * n <= sms
                if m == 1 or self._even_n
            ]
        )
        tiles = tiles_m * tiles_n
        splits = [s for s in family.SPLIT_K if tiles * (s - 1) < legality.SPLIT_WAVES * sms]
        split = 1 if rng.random() < 0.4 else rng.choice([*splits, min(2, max(splits))])
        groups = [g for g in family.RASTER_GROUP if g <= tiles_m // cluster_m]
        stages = rng.choice(self._stages)
        config = replace(
            smallest_config(key),
            stages=stages,
            dma_warps=rng.choice(family.DMA_WARPS),
            cluster_m=cluster_m,
            cluster_n=cluster_n,
            split_k=split,
            raster_group=rng.choice(groups) if tiles * split > sms else 1,
        )
        return Pair(self._problem(m, n, self._depth(stages, split), out), config, sms)

    @property
    def _even_n(self) -> bool:
        return self.key.tile_n % family.WIDE_STEP_N == 0

    @cached_property
    def _stages(self) -> list[int]:
        smem_bytes = self.device.limit("smem_per_block_bytes")
        columns = smallest_config(self.key).to_dict()
        element_bytes = ELEMENT_BYTES[self.key.dtype]
        return [
            stages
            for stages in family.STAGES
            if stages >= columns["stages"]
            and family.smem_bytes({**columns, "stages": stages}, element_bytes) <= smem_bytes
        ]

    def _rows(self) -> int:
        tile_m = self.key.tile_m
        if tile_m == family.MMA_M and self.rng.random() < 0.4:
            return self.rng.choice([1, 1, self.rng.randint(2, 63), 8 * self.rng.randint(1, 7)])
        return self._extent(tile_m, tile_m - family.MMA_M)

    def _columns(self, out: str) -> int:
        rng, key = self.rng, self.key
        step = legality.step_n(key.layout, out)
        narrower = [n for n in family.TILE_N if n % step == 0 and n < key.tile_n]
        if not narrower and rng.random() < 0.5:
            return rng.choice([1, 1, rng.randint(2, 63)])
        n = self._extent(key.tile_n, max(narrower, default=0))
        whole = VECTOR_BYTES // OUT_BYTES[out]  # what TMA stores rows in
        return -(-n // whole) * whole if rng.random() < 0.4 else n

    def _extent(self, tile: int, too_few: int) -> int:
        """m or n: some tiles, the last in part. One tile alone holds more than ``too_few``, or
        a smaller tile would do."""
        rng = self.rng
        most = (LARGE_EXTENT_MAX if self.large else EXTENT_MAX) // tile
        tiles = min(most, rng.choice([1, 1, 2, 2, 3, 4, 4, 5, 6, 12 if self.large else 8]))
        low = too_few + 1 if tiles == 1 else 1
        some = rng.randint(low, tile)
        last = rng.choice([tile, low, some, some // 8 * 8, min(tile, too_few + 8)])
        return tile * (tiles - 1) + max(low, last)

    def _depth(self, stages: int, split: int) -> int:
        """k, with an iteration at least for each share."""
        rng, tile_k = self.rng, self.key.tile_k
        if split == 1 and rng.random() < 0.4:
            return rng.choice([1, 1, rng.randint(2, 7), rng.randint(8, 63), rng.randint(64, 128)])
        share = rng.choice([1, 1, 2, 3, stages, rng.randint(stages, 2 * stages + 3)])
        most = max(split, DEPTH_MAX // tile_k)
        iterations = min(most, split * share + rng.choice([0, rng.randrange(split)]))
        last = rng.choice([tile_k, 1, rng.randint(1, tile_k), 8 * rng.randint(1, tile_k // 8)])
        return tile_k * (iterations - 1) + last

    def _problem(self, m: int, n: int, k: int, out: str) -> Problem:
        """The product of that size with its operands lying in all sorts of ways."""
        dtype = self.key.dtype
        a_is_k_major, b_is_k_major = is_k_major(self.key.layout)
        element, out_element = ELEMENT_BYTES[dtype], OUT_BYTES[out]
        a, lda = self._operand(m, k, a_is_k_major, "nt")
        b, ldb = self._operand(n, k, b_is_k_major, "tn")
        return Problem(
            m,
            n,
            k,
            dtype,
            a + b,
            out,
            lda=lda,
            ldb=ldb,
            ldc=self._pitch(m, n, out_element),
            a_offset=self._offset(element),
            b_offset=self._offset(element),
            c_offset=self._offset(out_element),
        )

    def _operand(self, rows: int, k: int, by_k: bool, letters: str) -> tuple[str, int | None]:
        """An operand's letter of the layout, of ``letters`` by whether it lies along k, and its
        pitch: so that the kernel sees it as its key says."""
        element = ELEMENT_BYTES[self.key.dtype]
        other = self.rng.random() < 0.3  # lines of one element, packed: one line the other way
        if by_k:
            if rows == 1 and other:
                return letters[0], None
            return letters[1], self._pitch(rows, k, element, packed=rows == 1 or k > 1)
        if k == 1 < rows and other:
            return letters[1], None
        return letters[0], self._pitch(k, rows, element, packed=rows > 1)

    def _pitch(
        self, lines: int, length: int, element_bytes: int, packed: bool = True
    ) -> int | None:
        """Packed, or with a gap: one that TMA takes, in whole lines or not, or any."""
        rng, vector = self.rng, VECTOR_BYTES // element_bytes
        way = rng.randrange(0 if packed else 2, 6) if lines > 1 else 5
        if way < 2:
            return None
        if way == 2:
            return copy_pitch(length + rng.randint(0, 64))
        if way < 5:
            return -(-length // vector) * vector + vector * rng.randint(0, 3)
        return length + rng.randint(1, 2 * vector)

    def _offset(self, element_bytes: int) -> int:
        vector = VECTOR_BYTES // element_bytes
        return self.rng.randrange(1, vector) if self.rng.random() < 0.2 else 0


def on_sms(device: DeviceProfile, sms: int) -> DeviceProfile:
    """The device as a launch sees it that may use ``sms`` SMs."""
    return replace(
        device, limits={**device.limits, "sms": replace(device.limits["sms"], value=sms)}
    )


def pair(index: int, seed: int, keys: Sequence[CompileKey], device: DeviceProfile) -> Pair:
    """Pair number ``index`` of a seed, of one of ``keys``: legal, and always the same.

    Raises RuntimeError where its key has hardly any legal launch.
    """
    small = [key for key in keys if (key.tile_m, key.tile_n) in SMALL_TILES]
    key = small[index // 8 % len(small)] if index % 8 == 0 else keys[index % len(keys)]
    large = index % LARGE_EVERY == LARGE_EVERY - 1
    draw = _Draw(random.Random(f"{seed}:{index}"), key, device, large)
    for _ in range(ATTEMPTS):
        drawn = draw.pair()
        try:
            legality.check(drawn.config, drawn.problem, on_sms(device, drawn.sms))
        except IllegalConfig:
            continue
        return drawn
    raise RuntimeError(f"{key.name}: no legal launch in {ATTEMPTS} draws")


def pairs(count: int, seed: int, device: DeviceProfile) -> list[Pair]:
    """The first ``count`` pairs of a seed, over ``chosen_keys`` in turn."""
    keys = chosen_keys(device)
    return [pair(index, seed, keys, device) for index in range(count)]


def covering(among: Sequence[Pair]) -> list[Pair]:
    """Few of these pairs that take every branch that all of them take."""
    return [among[index] for index in cover([set(branches_of(p).items()) for p in among])]


def counted(among: Iterable[Pair]) -> dict[str, int]:
    """How many of these pairs take each branch, as ``axis=value``, sorted."""
    return tally(map(branches_of, among))
