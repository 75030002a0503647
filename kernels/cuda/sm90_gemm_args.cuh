// What the host passes to sm90_gemm, and how it carves up shared memory and work.
#pragma once

#include "ptx.cuh"

namespace warpwright {

// Kernel argument block; kernels/launch_plan.py fills it field by field.
struct GemmArgs {
  unsigned short* c;   // m×n row-major, 16-bit elements
  float* workspace;    // split_k > 1: one tile of floats per unit of work
  u32* counters;       // split_k > 1: one per output tile, zero between launches
  i64 ldc;             // elements
  int m, n, k;
  int stages;          // slots of the ring
  int dma_warps;       // 1: A and B by one warp; 2: one each
  int split_k;         // CTAs per output tile, at most ceil(k / tile_k)
  int raster_group;    // rows of tiles walked together
  int stage_tx_bytes;  // bytes TMA delivers per slot
  int c_by_tma;        // 0 where n or ldc is no multiple of 8: stores element by element
  int reserved;
  i64 padding;
};
static_assert(sizeof(GemmArgs) == 80, "the launch plan packs 80 bytes");

constexpr int kWarpThreads = 32;
constexpr int kWarpgroupThreads = 128;
constexpr int kWarpgroupWarps = 4;
constexpr int kBlockRows = 64;       // rows of one wgmma
constexpr int kSubtileDepth = 64;    // 16-bit elements in a 128-byte swizzled row
constexpr int kElementBytes = 2;
constexpr int kStagingBuffers = 2;
constexpr int kMaxStages = 12;
constexpr int kMaxSplits = 65535;  // so that split * remainder fits 32 bits
constexpr int kBarrierBytes = 8;
constexpr int kFlagBytes = 16;
constexpr int kTileAlignment = 1024;  // the 128-byte swizzle repeats every 1,024 bytes

__device__ __forceinline__ constexpr int ceil_div(int a, int b) { return (a - 1) / b + 1; }
__device__ __forceinline__ constexpr int smaller(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ constexpr int largest_chunk(int tile_n) {
  return tile_n % 64 == 0 ? 64 : tile_n % 32 == 0 ? 32 : tile_n % 16 == 0 ? 16 : 8;
}

// Compile-time shape of a kernel, and byte offsets into its dynamic shared memory:
// slots (A tile, B tile), epilogue staging, full barriers, empty barriers, split-K flag.
template <typename Element_, int TileM, int TileN, int TileK, int MathWarpgroups,
          int DmaRegisters, int MathRegisters, int MmaInFlight>
struct GemmShape {
  using Element = Element_;
  static constexpr int kTileM = TileM, kTileN = TileN, kTileK = TileK;
  static constexpr int kMathWarpgroups = MathWarpgroups;
  static constexpr int kDmaRegisters = DmaRegisters, kMathRegisters = MathRegisters;
  static constexpr bool kRegisterSplit = MathRegisters != 0;
  static constexpr bool kMmaInFlight = MmaInFlight != 0;
  static constexpr int kBlocks = TileM / (kBlockRows * MathWarpgroups);  // per warpgroup
  static constexpr int kSubtiles = TileK / kSubtileDepth;
  static constexpr int kAccumulators = TileN / 2;  // per thread and 64-row block
  static constexpr int kChunkN = largest_chunk(TileN);
  static constexpr int kMathWarps = MathWarpgroups * kWarpgroupWarps;
  static constexpr int kMathThreads = MathWarpgroups * kWarpgroupThreads;
  static constexpr int kMaxThreads =
      kMathThreads + (kRegisterSplit ? kWarpgroupThreads : 2 * kWarpThreads);

  static constexpr int kSubtileABytes = TileM * kSubtileDepth * kElementBytes;
  static constexpr int kSubtileBBytes = TileN * kSubtileDepth * kElementBytes;
  static constexpr int kTileABytes = kSubtiles * kSubtileABytes;
  static constexpr int kTileBBytes = kSubtiles * kSubtileBBytes;
  static constexpr int kSlotBytes = kTileABytes + kTileBBytes;
  static constexpr int kStagingBytes = kBlockRows * kChunkN * kElementBytes;  // one buffer

  static_assert(TileM % (kBlockRows * MathWarpgroups) == 0, "whole 64-row blocks per warpgroup");
  static_assert(TileK % kSubtileDepth == 0, "whole swizzled rows");
  static_assert(kSubtileABytes % kTileAlignment == 0 && kSubtileBBytes % kTileAlignment == 0 &&
                    kStagingBytes % kTileAlignment == 0,
                "every tile starts on the swizzle's period");

  static __device__ __forceinline__ constexpr int staging_offset(int stages) {
    return stages * kSlotBytes;
  }
  static __device__ __forceinline__ constexpr int barrier_offset(int stages) {
    return staging_offset(stages) + MathWarpgroups * kStagingBuffers * kStagingBytes;
  }
  static __device__ __forceinline__ constexpr int flag_offset(int stages) {
    return barrier_offset(stages) + 2 * stages * kBarrierBytes;
  }
  static __device__ __forceinline__ constexpr int smem_bytes(int stages) {
    return flag_offset(stages) + kFlagBytes;
  }
};

// Shared-memory addresses of one CTA.
template <typename Shape>
struct GemmMemory {
  u32 base;
  int stages;

  __device__ __forceinline__ u32 slot_a(int slot) const { return base + slot * Shape::kSlotBytes; }
  __device__ __forceinline__ u32 slot_b(int slot) const {
    return slot_a(slot) + Shape::kTileABytes;
  }
  __device__ __forceinline__ u32 staging(int warpgroup, int buffer) const {
    return base + Shape::staging_offset(stages) +
           (warpgroup * kStagingBuffers + buffer) * Shape::kStagingBytes;
  }
  __device__ __forceinline__ u32 full(int slot) const {
    return base + Shape::barrier_offset(stages) + slot * kBarrierBytes;
  }
  __device__ __forceinline__ u32 empty(int slot) const { return full(stages + slot); }
  __device__ __forceinline__ u32 flag() const { return base + Shape::flag_offset(stages); }
};

// Position in the ring: producer and consumers each walk it in the same order, across units.
struct RingCursor {
  int slot = 0;
  u32 phase = 0;

  __device__ __forceinline__ void advance(int stages) {
    if (++slot == stages) {
      slot = 0;
      phase ^= 1;
    }
  }
};

// One unit of work: an output tile and a range of k-iterations.
struct Unit {
  int tile, split;
  int row, column;     // first element of the tile
  int k_begin, k_end;  // k-iterations
};

// The units of a launch, walked CTA by CTA. Tiles go down groups of raster_group tile rows,
// column by column, so that CTAs at work together share rows of A and columns of B in the L2.
template <typename Shape>
struct Schedule {
  int tiles_m, tiles_n, split_k, group;
  u32 units;
  u32 share, remainder;  // k-iterations over split_k

  __device__ __forceinline__ explicit Schedule(const GemmArgs& args)
      : tiles_m(ceil_div(args.m, Shape::kTileM)),
        tiles_n(ceil_div(args.n, Shape::kTileN)),
        split_k(args.split_k),
        group(smaller(args.raster_group, tiles_m)),
        units(static_cast<u32>(tiles_m) * static_cast<u32>(tiles_n) *
              static_cast<u32>(args.split_k)) {
    const u32 k_iterations = ceil_div(args.k, Shape::kTileK);
    share = k_iterations / args.split_k;
    remainder = k_iterations % args.split_k;
  }

  // floor(split * k_iterations / split_k), by a division of 32 bits.
  __device__ __forceinline__ int first_iteration(u32 split) const {
    return static_cast<int>(split * share + split * remainder / split_k);
  }

  __device__ __forceinline__ Unit unit(u32 index) const {
    Unit unit;
    unit.split = static_cast<int>(index % static_cast<u32>(split_k));
    unit.tile = static_cast<int>(index / static_cast<u32>(split_k));
    const int group_tiles = group * tiles_n;
    const int first_row = unit.tile / group_tiles * group;
    const int rows = smaller(group, tiles_m - first_row);
    const int within = unit.tile % group_tiles;
    unit.row = (first_row + within % rows) * Shape::kTileM;
    unit.column = within / rows * Shape::kTileN;
    unit.k_begin = first_iteration(unit.split);
    unit.k_end = first_iteration(unit.split + 1);
    return unit;
  }
};

}  // namespace warpwright
