// Rings of chunks in shared memory. Every group of consumer warps has a ring of its own, so that a
// slot is always waited for by the same warps and no phase is skipped: parities can't alias.
#pragma once

#include "norm_barrier.cuh"

namespace warpwright::norm {

enum Copies : int { kBulk = 0, kAsync = 1, kVector = 2 };
enum Barriers : int { kMbarrier = 0, kNamed = 1 };

// A slot and how often the ring has gone round.
struct Position {
  u32 slot = 0, lap = 0;

  __device__ __forceinline__ void advance(u32 depth) {
    if (++slot == depth) slot = 0, ++lap;
  }
  __device__ __forceinline__ u32 parity() const { return lap & 1; }
};

// A chunk in memory.
struct Chunk {
  const char* from;
  u32 bytes;
};

// Chunks of this block's units. A unit has `passes` of `chunks` each where its row comes twice.
struct Chunks {
  const Args& args;
  const Schedule& schedule;
  u32 row_bytes;

  __device__ __forceinline__ Chunk at(u32 unit, u32 part) const {
    const i64 row = schedule.unit(unit) * args.rows_per_unit;
    const char* start = static_cast<const char*>(args.x) + row * row_bytes;
    if (args.chunks_per_unit == 1) {
      const i64 left = args.rows - row;
      const u32 rows = left < args.rows_per_unit ? static_cast<u32>(left) : args.rows_per_unit;
      return {start, rows * row_bytes};
    }
    const u32 skipped = part % args.chunks_per_unit * args.chunk_bytes;
    return {start + skipped, min(args.chunk_bytes, row_bytes - skipped)};
  }
};

// The rings of a block: slots first, then for each slot its full and its empty barrier.
//
//   full[slot]   bulk: 1 arrival and the chunk's bytes; async: every loading thread, by its copies;
//                vector: one of each loading warp
//   empty[slot]  one of each consumer warp of the slot's group
//
// Named barriers take the loading and the consuming threads both: who hands over arrives, who
// needs it syncs.
template <int kCopies, int kBarriers, int kLoadingWarps, int kConsumingWarps, int kGroups>
struct Rings {
  static constexpr int kSlotBytes = kBarriers == kMbarrier ? 16 : 0;
  static constexpr u32 kThreads = (kLoadingWarps + kConsumingWarps) * kWarp;

  u32 slots, barriers, depth, slot_bytes, first_id;

  __device__ __forceinline__ Rings(const Args& args, u32 smem, u32 first_named)
      : slots(smem),
        barriers(smem + kGroups * args.depth * args.slot_bytes),
        depth(args.depth),
        slot_bytes(args.slot_bytes),
        first_id(first_named) {}

  __device__ __forceinline__ u32 bytes() const {
    return kGroups * depth * (slot_bytes + kSlotBytes);
  }
  __device__ __forceinline__ void initialise() const {
    if constexpr (kBarriers == kMbarrier) {
      constexpr u32 kLoads = kCopies == kBulk    ? 1
                             : kCopies == kAsync ? kLoadingWarps * kWarp
                                                 : kLoadingWarps;
      for (u32 i = 0; i < kGroups * depth; ++i) {
        ptx::barrier_init(barriers + 16 * i, kLoads);
        ptx::barrier_init(barriers + 16 * i + 8, kConsumingWarps);
      }
      barriers_initialised();
    }
  }
  __device__ __forceinline__ u32 slot(u32 group, const Position& at) const {
    return slots + (group * depth + at.slot) * slot_bytes;
  }
  __device__ __forceinline__ u32 full(u32 group, const Position& at) const {
    return kBarriers == kMbarrier ? barriers + 16 * (group * depth + at.slot)
                                  : first_id + 2 * (group * depth + at.slot);
  }
  __device__ __forceinline__ u32 empty(u32 group, const Position& at) const {
    return full(group, at) + (kBarriers == kMbarrier ? 8 : 1);
  }

  // ---- the consumers' side: every lane

  __device__ __forceinline__ void wait_full(u32 group, const Position& at) const {
    if constexpr (kBarriers == kMbarrier) {
      wait(full(group, at), at.parity());
    } else {
      named_sync(full(group, at), kThreads);
    }
  }
  // `again`: whether the slot will be filled once more. A named barrier whose sync never comes
  // must not be arrived at.
  __device__ __forceinline__ void give_back(u32 group, const Position& at, bool again) const {
    __syncwarp();
    if constexpr (kBarriers == kMbarrier) {
      if (threadIdx.x % kWarp == 0) arrive(empty(group, at));
    } else if (again) {
      named_arrive(empty(group, at), kThreads);
    }
  }

  // ---- the loading side: `thread` of kLoadingWarps·32, or one thread with bulk copies

  __device__ __forceinline__ void fill(u32 group, const Position& at, const Chunk& chunk,
                                       u32 thread) const {
    if constexpr (kBarriers == kMbarrier) {
      wait(empty(group, at), at.parity() ^ 1);
    } else if (at.lap != 0) {
      named_sync(empty(group, at), kThreads);
    }
    const u32 to = slot(group, at), barrier = full(group, at);
    if constexpr (kCopies == kBulk) {
      ptx::fence_async_proxy();
      ptx::barrier_arrive_expect(barrier, chunk.bytes);
      bulk_load(to, chunk.from, chunk.bytes, barrier);
    } else if constexpr (kCopies == kAsync) {
      for (u32 skip = thread * 16; skip < chunk.bytes; skip += kStride) {
        async_load(to + skip, chunk.from + skip);
      }
      arrive_when_loaded(barrier);
    } else {
      copy(to, chunk, thread);
      if constexpr (kBarriers == kMbarrier) {
        __syncwarp();
        if (threadIdx.x % kWarp == 0) arrive(barrier);
      } else {
        named_arrive(barrier, kThreads);
      }
    }
  }

 private:
  static constexpr u32 kStride = kLoadingWarps * kWarp * 16;
  static constexpr int kWords = 8;  // of a thread on their way together

  static __device__ __forceinline__ void copy(u32 to, const Chunk& chunk, u32 thread) {
    for (u32 first = thread * 16; first < chunk.bytes; first += kWords * kStride) {
      Vector<16> words[kWords];
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const u32 skip = first + i * kStride;
        if (skip < chunk.bytes) {
          words[i] = load_once(reinterpret_cast<const Vector<16>*>(chunk.from + skip));
        }
      }
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const u32 skip = first + i * kStride;
        if (skip < chunk.bytes) store_shared(to + skip, words[i]);
      }
    }
  }
};

}  // namespace warpwright::norm
