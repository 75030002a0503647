"""The steps of a barrier program: what the lanes of a warp do to synchronise, one at a time.

The description (``solver.ring.program``, ``epilogue``, ``cta``), the searches over it and what is
read off a compiled kernel are all made of these.

An mbarrier is named by its CTA's own layout, ``full[i]`` or ``empty[i]``; a cluster has two CTAs,
and ``peer`` is the other one's barrier at the same place. Slots, warpgroups and buffers are
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

ALL = (1 << 32) - 1
"""The mask of a whole warp."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation."""

    @property
    def words(self) -> str:
        """The operation in words, of those that are not known here (``stream_steps``)."""
        raise TypeError(f"no operation of a barrier program: {self}")


@dataclass(frozen=True, slots=True)
class Init(Op):
    """Initialise an mbarrier: ``count`` arrivals complete each of its phases."""

    barrier: str
    count: int


@dataclass(frozen=True, slots=True)
class Wait(Op):
    """Block until the phase of this parity is complete: until the current one has the other."""

    barrier: str
    parity: int


@dataclass(frozen=True, slots=True)
class Arrive(Op):
    """Arrive once; with ``tx_bytes`` the phase waits for so many more to be delivered."""

    barrier: str
    tx_bytes: int = 0
    peer: bool = False


@dataclass(frozen=True, slots=True)
class Load(Op):
    """Start a bulk copy into a slot that reports ``tx_bytes`` to a barrier when it has landed.

    ``shared``: into the same slot of both CTAs of the cluster, each told at its own barrier.
    """

    slot: int
    barrier: str
    tx_bytes: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Multiply(Op):
    """Issue the matrix products of a whole slot; they run on until they are waited for.

    ``fresh`` where they replace the accumulators instead of being added to them.
    """

    slot: int
    fresh: bool


@dataclass(frozen=True, slots=True)
class MultiplyWait(Op):
    """Block until at most ``pending`` of this warp's groups of products still run."""

    pending: int


@dataclass(frozen=True, slots=True)
class Sync(Op):
    """A named barrier: block until ``warps`` whole warps are at it."""

    id: int
    warps: int


@dataclass(frozen=True, slots=True)
class ClusterArrive(Op):
    """Arrive at the cluster's barrier, which takes every thread that has not exited."""


@dataclass(frozen=True, slots=True)
class ClusterWait(Op):
    """Block until every thread of the cluster has arrived as often as this one."""


@dataclass(frozen=True, slots=True)
class Fence(Op):
    """A fence, by PTX's name for what it orders."""

    kind: str


INIT_FENCE = Fence("mbarrier_init.release.cluster")
ASYNC_FENCE = Fence("proxy.async.shared::cta")
GPU_FENCE = Fence("acq_rel.gpu")


@dataclass(frozen=True, slots=True)
class LetNextLaunchBegin(Op):
    """Let the stream's next launch begin, as far as this CTA is concerned: it may once every CTA of
    the launch has said so or has exited. Nothing waits for it here."""


@dataclass(frozen=True, slots=True)
class WaitForLaunchBefore(Op):
    """Block until the launch before this one in the stream has ended and what it wrote can be
    seen. It needs nothing of this launch."""


@dataclass(frozen=True, slots=True)
class Fill(Op):
    """Bring elements of C into a staging buffer, any of its rows."""

    warpgroup: int
    buffer: int


@dataclass(frozen=True, slots=True)
class ReadFilled(Op):
    """Read what was brought into this warp's own rows of a staging buffer."""

    warpgroup: int
    buffer: int


@dataclass(frozen=True, slots=True)
class Stage(Op):
    """Write results to this warp's own rows of a staging buffer."""

    warpgroup: int
    buffer: int


@dataclass(frozen=True, slots=True)
class ReadStaged(Op):
    """Read results of any row back from a staging buffer, to store them one by one."""

    warpgroup: int
    buffer: int


@dataclass(frozen=True, slots=True)
class Store(Op):
    """Start a TMA store of a staging buffer."""

    warpgroup: int
    buffer: int


@dataclass(frozen=True, slots=True)
class StoreCommit(Op):
    """Commit the thread's TMA stores as a group."""


@dataclass(frozen=True, slots=True)
class StoreWait(Op):
    """Block until at most ``pending`` of the thread's groups have not read their buffers yet."""

    pending: int


@dataclass(frozen=True, slots=True)
class StorePartial(Op):
    """Store accumulators to the split-K workspace."""


@dataclass(frozen=True, slots=True)
class LoadPartial(Op):
    """Load every split's accumulators from the split-K workspace."""


@dataclass(frozen=True, slots=True)
class CountTile(Op):
    """Count this CTA at its tile's counter, which wraps to zero beyond ``last``."""

    last: int


@dataclass(frozen=True, slots=True)
class StoreFlag(Op):
    """Tell the CTA, in the split-K flag, whether it is the last at its tile."""


@dataclass(frozen=True, slots=True)
class LoadFlag(Op):
    """Read the split-K flag, and whether this run says that the CTA is the last."""

    last: bool


OUTSIDE = (Load, Fill, ReadStaged, Store, StorePartial, LoadPartial, CountTile)
"""What reads or writes memory that other launches see; of these, Fill brings elements of C and
ReadStaged is followed by their stores."""

RING = (Wait, Arrive, Load, Multiply, MultiplyWait)
"""What works the ring once its barriers are initialised."""

EVERYBODY = (Sync, ClusterArrive, ClusterWait)
"""What blocks until others come to the same place."""


@dataclass(frozen=True, slots=True)
class Step:
    """An operation and the lanes of a warp that execute it, as a mask; each counts for itself."""

    op: Op
    lanes: int = ALL

    @property
    def count(self) -> int:
        """How many lanes execute it."""
        return self.lanes.bit_count()

    def __contains__(self, lane: int) -> bool:
        return bool(self.lanes >> lane & 1)

    def __repr__(self) -> str:
        return f"{self.op!r} by {who(self.lanes)}"


Program = tuple[Step, ...]


def too_early(program: Program, outside: tuple[type[Op], ...] = OUTSIDE) -> frozenset[int]:
    """Which of a warp's steps, by number, touch memory that other launches see in a lane that has
    not waited for the launch before.

    A lane's own wait alone counts, though others may have waited for it to be here: no order of
    the ring or the epilogue is needed to see that all of its memory is touched in time.
    """
    waited, found = 0, []
    for at, step in enumerate(program):
        if isinstance(step.op, WaitForLaunchBefore):
            waited |= step.lanes
        elif isinstance(step.op, outside) and step.lanes & ~waited:
            found.append(at)
    return frozenset(found)


def who(lanes: int) -> str:
    """A mask in words."""
    if lanes == ALL:
        return "the warp"
    first = (lanes & -lanes).bit_length() - 1
    return f"lane {first}" if lanes.bit_count() == 1 else f"{lanes.bit_count()} lanes"


def words(step: Step) -> str:
    """A step in words."""
    text = _words(step.op)
    blocks = isinstance(
        step.op, Wait | MultiplyWait | StoreWait | Sync | ClusterWait | WaitForLaunchBefore
    )
    return f"{text} by {step.count} lanes" if 1 < step.count < 32 and not blocks else text


def _words(op: Op) -> str:
    match op:
        case Init(barrier, count):
            return f"initialise {barrier} for {count} arrivals"
        case Wait(barrier, parity):
            return f"wait for {barrier} to complete parity {parity}"
        case Arrive(barrier, tx_bytes, peer):
            where = f"the peer's {barrier}" if peer else barrier
            return f"arrive at {where}" + (f", {tx_bytes} bytes expected" if tx_bytes else "")
        case Load(slot, barrier, tx_bytes, shared):
            both = " of both CTAs" if shared else ""
            return f"start a copy of {tx_bytes} bytes into slot {slot}{both}, told to {barrier}"
        case Multiply(slot):
            return f"multiply from slot {slot}"
        case MultiplyWait(pending):
            return f"wait until at most {pending} products run"
        case Sync(number, warps):
            return f"wait for {warps} warps at barrier {number}"
        case ClusterArrive():
            return "arrive at the cluster's barrier"
        case ClusterWait():
            return "wait for the cluster"
        case Fence(kind):
            return f"fence {kind}"
        case LetNextLaunchBegin():
            return "let the next launch begin"
        case WaitForLaunchBefore():
            return "wait for the launch before to end"
        case Fill(_, buffer):
            return f"bring elements of C into buffer {buffer}"
        case ReadFilled(_, buffer):
            return f"read its rows of C from buffer {buffer}"
        case Stage(_, buffer):
            return f"stage its rows in buffer {buffer}"
        case ReadStaged(_, buffer):
            return f"read results from buffer {buffer}"
        case Store(_, buffer):
            return f"start a TMA store of buffer {buffer}"
        case StoreCommit():
            return "commit its stores"
        case StoreWait(pending):
            return f"wait until at most {pending} stores read their buffers"
        case StorePartial():
            return "store its partial sums"
        case LoadPartial():
            return "load every split's partial sums"
        case CountTile():
            return "count this CTA at its tile"
        case StoreFlag():
            return "write the flag"
        case LoadFlag(last):
            return f"read the flag: {'last' if last else 'not last'}"
    return op.words
