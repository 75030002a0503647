// norm_activation from rings of chunks: `specialised`, whose producer warps come first in the block
// and fill the rings of all groups of consumers, and `ring`, whose groups fill their own.
#pragma once

#include "norm_ring.cuh"
#include "norm_rows.cuh"

namespace warpwright::norm {

// Where a row is between its statistics and its transformation.
enum Hold : int {
  kRegisters = 0,  // slots are given back as soon as they are read
  kShared = 1,     // in its slots, all of which the ring must have
  kReload = 2,     // nowhere: it has more chunks than the ring has slots, and they come twice
};

// kProducers      producer warps; 0: consumers load for themselves
// kGroups         groups of consumers, each with its own ring and its own units
// kTeam           warps that share a row
// kVectors        of a lane's share of a row, with kRegisters
// kChunkVectors   of a lane's share of a chunk; 0: chunks are of whole rows
// kBulkStore      rows are transformed in their slots and leave by bulk copies
// kProducerRegisters, kConsumerRegisters   after setmaxnreg; 0: as launched
template <class T, int kNorm, int kActivation, int kCopies, int kBarriers, int kProducers,
          int kConsumers, int kGroups, int kTeam, int kHold, int kVectors, int kChunkVectors,
          int kBulkStore, int kProducerRegisters, int kConsumerRegisters>
struct Stream {
  static constexpr int kThreads = (kProducers + kConsumers) * kWarp;
  static constexpr int kGroupWarps = kConsumers / kGroups;
  static constexpr int kTeams = kGroupWarps / kTeam;  // of a group
  static constexpr int kEach = 16 / T::kBytes;
  static constexpr int kStep = kTeam * kWarp;  // vectors that a team takes at a time
  using Sharers = Team<kTeam, kGroups * kTeams>;
  static constexpr int kFixedBytes = kGroups * kTeams * Sharers::kScratchBytes;
  static constexpr bool kOwn = kProducers == 0;
  static constexpr bool kWhole = kChunkVectors == 0;
  static constexpr int kLoadingWarps = kOwn ? kGroupWarps : kProducers;

  static_assert(kConsumers % kGroups == 0 && kGroupWarps % kTeam == 0, "whole groups and teams");
  static_assert(kCopies != kBulk || kBarriers == kMbarrier, "bulk copies report to mbarriers");
  static_assert(kCopies != kAsync || kBarriers == kMbarrier, "so do asynchronous ones");
  static_assert(!kOwn || kCopies != kVector, "who loads for itself must not wait for its loads");
  static_assert(kWhole || kTeams == 1, "the warps of a group share a row that comes in chunks");
  static_assert(!kWhole || kHold != kReload, "only rows of several chunks come twice");
  static_assert(!kBulkStore || kHold != kRegisters, "bulk stores leave from the slots");
  static_assert(kConsumerRegisters == 0 || (kProducers % 4 == 0 && kConsumers % 4 == 0),
                "setmaxnreg is for whole warpgroups");

  using Ring = Rings<kCopies, kBarriers, kLoadingWarps, kGroupWarps, kGroups>;
  using V = Vector<16>;
  static constexpr int kSlotBytes = Ring::kSlotBytes;

  static __device__ __forceinline__ void run(const Args& args, char* smem) {
    const u32 teams = kTeam > 1 ? kGroups * kTeams : 0;
    const Ring ring(args, ptx::shared_address(smem), 1 + teams);
    if (ptx::dynamic_smem_bytes() < kFixedBytes + ring.bytes() || args.depth == 0) __trap();
    check(args);
    if (threadIdx.x == 0) ring.initialise();
    __syncthreads();  // the only barrier of the whole block: everyone sees initialised barriers
    const Schedule schedule(args);
    const Chunks chunks{args, schedule, args.width * T::kBytes};
    const int warp = threadIdx.x / kWarp;
    if (warp < kProducers) {
      if constexpr (kProducerRegisters != 0) ptx::give_registers<kProducerRegisters>();
      produce(args, ring, schedule, chunks);
    } else {
      if constexpr (kConsumerRegisters != 0) ptx::take_registers<kConsumerRegisters>();
      Consumer(args, ring, schedule, chunks, smem + ring.bytes(), warp - kProducers).run();
    }
  }

 private:
  static __device__ __forceinline__ void check(const Args& args) {
    const u32 vectors = args.width / kEach;
    bool right = args.width % kEach == 0 && args.chunks_per_unit > 0 &&
                 kWhole == (args.chunks_per_unit == 1);
    if (!kWhole) right &= args.rows_per_unit == 1 && args.chunk_bytes % 16 == 0;
    if (kHold == kRegisters) {
      right &= vectors <= kVectors * kStep;
      right &= kWhole || args.chunk_bytes == kChunkVectors * kStep * 16;
    }
    if (kHold == kShared) right &= args.chunks_per_unit <= args.depth;
    if (kHold == kReload) right &= args.chunks_per_unit > args.depth;
    if (!right) __trap();
  }
  static __device__ __forceinline__ u32 parts(const Args& args) {
    return args.chunks_per_unit * (kHold == kReload ? 2 : 1);
  }

  // Chunk by chunk of a round of units, one of each group, so that all groups get on together.
  static __device__ __forceinline__ void produce(const Args& args, const Ring& ring,
                                                 const Schedule& schedule, const Chunks& chunks) {
    if (kCopies == kBulk && threadIdx.x != 0) return;
    Position at;
    for (u32 first = 0; first < schedule.count; first += kGroups) {
      for (u32 part = 0; part < parts(args); ++part) {
        for (u32 group = 0; group < kGroups && first + group < schedule.count; ++group) {
          ring.fill(group, at, chunks.at(first + group, part), threadIdx.x);
        }
        at.advance(args.depth);
      }
    }
  }

  struct Consumer {
    const Args& args;
    const Ring& ring;
    const Schedule& schedule;
    const Chunks& chunks;
    const int group, warp;  // within the group
    const u32 vectors, row_bytes;
    Sharers team;
    const int number;  // of the team, within the group
    Position at;
    u32 read = 0;  // chunks given back
    u32 total;     // that come
    // what is to be loaded next, where consumers load for themselves
    Position ahead;
    u32 next_unit, next_part = 0;

    __device__ __forceinline__ Consumer(const Args& args_, const Ring& ring_,
                                        const Schedule& schedule_, const Chunks& chunks_,
                                        char* scratch, int consumer)
        : args(args_),
          ring(ring_),
          schedule(schedule_),
          chunks(chunks_),
          group(consumer / kGroupWarps),
          warp(consumer % kGroupWarps),
          vectors(args_.width / kEach),
          row_bytes(args_.width * T::kBytes),
          team{reinterpret_cast<float*>(scratch) + consumer / kTeam * 2 * kTeam,
               static_cast<u32>(1 + consumer / kTeam), consumer % kTeam,
               static_cast<int>(threadIdx.x % kWarp)},
          number(consumer % kGroupWarps / kTeam),
          total(0),
          next_unit(consumer / kGroupWarps) {
      const u32 mine = static_cast<u32>(group) < schedule.count
                           ? (schedule.count - group + kGroups - 1) / kGroups
                           : 0;
      total = mine * parts(args);
    }

    __device__ __forceinline__ void run() {
      if constexpr (kOwn) {
        for (u32 i = 0; i < args.depth; ++i) load_next();
      }
      for (u32 unit = group; unit < schedule.count; unit += kGroups) {
        const i64 row = schedule.unit(unit) * args.rows_per_unit;
        if constexpr (kHold == kRegisters && kWhole) {
          whole_rows(row);
        } else if constexpr (kHold == kRegisters) {
          row_by_chunks(row);
        } else if constexpr (kWhole) {
          rows_in_a_slot(row);
        } else {
          row_in_slots(row);
        }
      }
    }

   private:
    __device__ __forceinline__ void load_next() {
      if (next_unit >= schedule.count) return;
      const bool loads = kCopies == kAsync || (warp == 0 && team.lane == 0);
      if (loads) {
        ring.fill(group, ahead, chunks.at(next_unit, next_part), warp * kWarp + team.lane);
      }
      __syncwarp();
      ahead.advance(args.depth);
      if (++next_part == parts(args)) next_part = 0, next_unit += kGroups;
    }
    __device__ __forceinline__ void give_back() {
      ring.give_back(group, at, read + args.depth < total);
      ++read;
      at.advance(args.depth);
      if constexpr (kOwn) load_next();
    }
    __device__ __forceinline__ char* output(i64 row) const {
      return static_cast<char*>(args.y) + row * row_bytes;
    }
    __device__ __forceinline__ u32 rows_from(i64 row) const {
      const i64 left = args.rows - row;
      return left < args.rows_per_unit ? static_cast<u32>(left) : args.rows_per_unit;
    }

    using Row = RegisterRow<T, kNorm, kActivation, 16, kTeam, kVectors>;

    // A slot of rows, each into the registers of a team.
    __device__ __forceinline__ void whole_rows(i64 row) {
      const u32 rows = rows_from(row);
      ring.wait_full(group, at);
      if (static_cast<u32>(number) >= rows) give_back();
      for (u32 mine = number; mine < rows; mine += kTeams) {
        const u32 slot = ring.slot(group, at) + mine * row_bytes;
        Row values;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          const u32 place = team.index() + v * kStep;
          values.raw[v] = place < vectors ? load_shared(slot + place * 16) : zeros<16>();
        }
        if (mine + kTeams >= rows) give_back();
        values.finish(team, args, vectors, reinterpret_cast<V*>(output(row + mine)));
      }
    }

    // A row of several slots into the registers of the group's one team.
    __device__ __forceinline__ void row_by_chunks(i64 row) {
      Row values;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int inside = v % kChunkVectors;
        const bool there = v / kChunkVectors < static_cast<int>(args.chunks_per_unit);
        if (inside == 0 && there) ring.wait_full(group, at);
        const u32 place = team.index() + inside * kStep;
        values.raw[v] = team.index() + v * kStep < vectors
                            ? load_shared(ring.slot(group, at) + place * 16)
                            : zeros<16>();
        if ((inside == kChunkVectors - 1 || v == kVectors - 1) && there) give_back();
      }
      values.finish(team, args, vectors, reinterpret_cast<V*>(output(row)));
    }

    __device__ __forceinline__ void add(Running<kNorm>& running, u32 slot, u32 count) const {
#pragma unroll 2
      for (u32 place = team.index(); place < count; place += kStep) {
        float x[kEach];
        unpack<T>(load_shared(slot + place * 16), x);
        running.add(x);
      }
    }

    static constexpr int kAtOnce = kBatch / kEach;

    // `count` vectors in a slot, `skipped` vectors into their row.
    __device__ __forceinline__ void write(const Moments& moments, u32 slot, u32 skipped, u32 count,
                                          char* to) const {
      for (u32 first = team.index(); first < count; first += kAtOnce * kStep) {
        V batch[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const u32 place = first + i * kStep;
          batch[i] = place < count ? load_shared(slot + place * 16) : zeros<16>();
        }
        transform<T, kActivation>(batch, moments, args, skipped + first, kStep, skipped + count);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const u32 place = first + i * kStep;
          if (place >= count) continue;
          if constexpr (kBulkStore) {
            store_shared(slot + place * 16, batch[i]);
          } else {
            reinterpret_cast<V*>(to)[place] = batch[i];
          }
        }
      }
      if constexpr (kBulkStore) {
        ptx::fence_async_proxy();
        team.sync();
        if (team.index() == 0) bulk_store(to, slot, count * 16);
      }
    }

    __device__ __forceinline__ void rows_in_a_slot(i64 row) {
      const u32 rows = rows_from(row);
      ring.wait_full(group, at);
      for (u32 mine = number; mine < rows; mine += kTeams) {
        const u32 slot = ring.slot(group, at) + mine * row_bytes;
        Running<kNorm> running;
        add(running, slot, vectors);
        write(running.of_row(team, args.width, args.eps), slot, 0, vectors, output(row + mine));
      }
      give_back();
    }

    __device__ __forceinline__ void row_in_slots(i64 row) {
      const u32 each = args.chunk_bytes / 16;
      Running<kNorm> running;
      const Position start = at;
      for (u32 part = 0; part < args.chunks_per_unit; ++part) {
        ring.wait_full(group, at);
        add(running, ring.slot(group, at), min(each, vectors - part * each));
        if constexpr (kHold == kReload) {
          give_back();
        } else {
          at.advance(args.depth);
        }
      }
      const Moments moments = running.of_row(team, args.width, args.eps);
      if constexpr (kHold == kShared) at = start;
      for (u32 part = 0; part < args.chunks_per_unit; ++part) {
        if constexpr (kHold == kReload) ring.wait_full(group, at);
        write(moments, ring.slot(group, at), part * each, min(each, vectors - part * each),
              output(row) + part * args.chunk_bytes);
        give_back();
      }
    }
  };
};

}  // namespace warpwright::norm
