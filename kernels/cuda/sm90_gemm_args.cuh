// What the host passes to sm90_gemm, and how it carves up shared memory and work.
#pragma once

#include "ptx.cuh"

namespace warpwright {

// What C is stored as; the numbers are the launch plan's.
enum OutType : int { kOutBf16 = 0, kOutFp16 = 1, kOutFp32 = 2 };

// What the L2 is told of an operand's lines, both or neither; the numbers are the launch plan's.
enum CachePolicy : int { kNotTold = 0, kEvictFirst = 1, kEvictLast = 2 };

// Kernel argument block; kernels/launch_plan.py fills it field by field.
struct GemmArgs {
  void* c;             // m×n row-major
  float* workspace;    // split_k > 1: one tile of floats per unit of work
  u32* counters;       // split_k > 1: one per output tile, zero between launches
  uint4* progress;     // debug build: one record per warp of the grid, in host memory
  i64 ldc;             // elements
  int m, n, k;
  int stages;          // slots of the ring
  int dma_warps;       // 1: A and B by one warp; 2: one each
  int split_k;         // CTAs per output tile, at most ceil(k / tile_k)
  int raster_group;    // rows of clusters walked together
  int cluster_m;       // CTAs of a cluster down C's rows, which share tiles of B
  int cluster_n;       // and along its columns, which share tiles of A; 2 CTAs at most
  int a_copies;        // TMA copies of one CTA into a slot's A tile, where k is not contiguous
  int b_copies;
  int a_box_rows;      // lines of A in each of them; a cluster that shares a tile splits them
  int b_box_rows;
  int a_tx_bytes;      // bytes of A that land in a slot, the peer's share included
  int b_tx_bytes;
  int a_policy;        // CachePolicy
  int b_policy;        // kNotTold where a_policy is
  int c_by_tma;        // 0 where rows of C don't start or end on 16 bytes: element by element
  int out_type;        // OutType
  float alpha, beta;   // C = alpha·A·B + beta·C; C is not read where beta is 0
  int plain;           // 1 where C is of the operands' type, by TMA, alpha 1 and beta 0
};
static_assert(sizeof(GemmArgs) == 128, "the launch plan packs 128 bytes");

constexpr int kWarpThreads = 32;
constexpr int kWarpgroupThreads = 128;
constexpr int kWarpgroupWarps = 4;
constexpr int kBlockRows = 64;       // rows of one wgmma
constexpr int kSubtileDepth = 64;    // 16-bit elements in a 128-byte swizzled row
constexpr int kClusterMax = 2;       // CTAs of a cluster
constexpr int kElementBytes = 2;
constexpr int kStagingBuffers = 2;
constexpr int kMaxStages = 12;
constexpr int kMaxSplits = 65535;  // so that split * remainder fits 32 bits
constexpr int kBarrierBytes = 8;
constexpr int kFlagBytes = 16;
constexpr int kTileAlignment = 1024;  // the 128-byte swizzle repeats every 1,024 bytes

__device__ __forceinline__ constexpr int ceil_div(int a, int b) { return (a - 1) / b + 1; }
__device__ __forceinline__ constexpr int smaller(int a, int b) { return a < b ? a : b; }
// Columns of a piece of 16-bit output: the most, 104 at most, that divide the tile and are either
// a power of two, up to 64, or an odd number of eights. Rows of an odd number of 16 bytes meet no
// bank twice in eight rows; rows of 128, 64 or 32 bytes are swizzled.
__device__ __forceinline__ constexpr int piece_columns(int tile_n) {
  for (int columns = 104; columns > 8; columns -= 8) {
    const bool is_odd = columns / 8 % 2 == 1;
    if (tile_n % columns == 0 && (is_odd || columns == 64 || columns == 32 || columns == 16)) {
      return columns;
    }
  }
  return 8;
}
// Columns of a swizzled row of as many bytes as the tile's width allows.
__device__ __forceinline__ constexpr int swizzle_columns(int tile_n) {
  return tile_n % 64 == 0 ? 64 : tile_n % 32 == 0 ? 32 : tile_n % 16 == 0 ? 16 : 8;
}

// Compile-time shape of a kernel, and byte offsets into its dynamic shared memory:
// slots (A tile, B tile), epilogue staging, full barriers, empty barriers, split-K flag.
template <typename Element_, bool AKMajor, bool BKMajor, int TileM, int TileN, int TileK,
          int MathWarpgroups, int DmaRegisters, int MathRegisters, int MmaInFlight>
struct GemmShape {
  using Element = Element_;
  static constexpr bool kAKMajor = AKMajor, kBKMajor = BKMajor;
  static constexpr int kTileM = TileM, kTileN = TileN, kTileK = TileK;
  static constexpr int kMathWarpgroups = MathWarpgroups;
  static constexpr int kDmaRegisters = DmaRegisters, kMathRegisters = MathRegisters;
  static constexpr bool kRegisterSplit = MathRegisters != 0;
  static constexpr bool kMmaInFlight = MmaInFlight != 0;
  static constexpr int kBlocks = TileM / (kBlockRows * MathWarpgroups);  // per warpgroup
  static constexpr int kAccumulators = TileN / 2;  // per thread and 64-row block
  static constexpr int kPieceN = piece_columns(TileN);      // of C in 16 bits
  static constexpr int kSwizzleN = swizzle_columns(TileN);  // of B where n is contiguous
  static constexpr int kMathWarps = MathWarpgroups * kWarpgroupWarps;
  static constexpr int kMathThreads = MathWarpgroups * kWarpgroupThreads;
  static constexpr int kMaxThreads =
      kMathThreads + (kRegisterSplit ? kWarpgroupThreads : 2 * kWarpThreads);

  // A tile is a row of subtiles, each as wide as the swizzle: 64 elements of k by all of the
  // tile's rows where the operand is contiguous in k; 64 rows (B: kSwizzleN) by all of its k
  // where it is contiguous in m or n.
  static constexpr int kWidthA = kSubtileDepth;
  static constexpr int kWidthB = BKMajor ? kSubtileDepth : kSwizzleN;
  static constexpr int kLinesA = AKMajor ? TileM : TileK;
  static constexpr int kLinesB = BKMajor ? TileN : TileK;
  static constexpr int kSubtileABytes = kLinesA * kWidthA * kElementBytes;
  static constexpr int kSubtileBBytes = kLinesB * kWidthB * kElementBytes;
  static constexpr int kTileABytes = TileM * TileK * kElementBytes;
  static constexpr int kTileBBytes = TileN * TileK * kElementBytes;
  static constexpr int kSlotBytes = kTileABytes + kTileBBytes;
  static constexpr int kStagingBytes = kBlockRows * kPieceN * kElementBytes;  // one buffer

  static_assert(TileM % (kBlockRows * MathWarpgroups) == 0, "whole 64-row blocks per warpgroup");
  static_assert(TileK % kSubtileDepth == 0, "whole swizzled rows");
  static_assert(BKMajor || kSwizzleN >= 16, "wgmma transposes from swizzled rows only");
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

// Whether CTAs work in clusters, which are of two.
__device__ __forceinline__ bool is_clustered(const GemmArgs& args) {
  return args.cluster_m + args.cluster_n > kClusterMax;
}

// One unit of work: an output tile and a range of k-iterations.
struct Unit {
  int tile, split;
  int row, column;     // first element of the tile
  int k_begin, k_end;  // k-iterations
};

// The units of a launch, walked cluster by cluster; every CTA of a cluster has a tile of its
// own, all with the same k range. Clusters' tiles go down groups of raster_group rows, column
// by column, so that CTAs at work together share rows of A and columns of B in the L2.
template <typename Shape>
struct Schedule {
  const GemmArgs& args;
  int clusters_m, clusters_n, group;
  u32 units;
  u32 share, remainder;  // k-iterations over split_k

  __device__ __forceinline__ explicit Schedule(const GemmArgs& launch)
      : args(launch),
        clusters_m(ceil_div(args.m, Shape::kTileM) >> (args.cluster_m - 1)),
        clusters_n(ceil_div(args.n, Shape::kTileN) >> (args.cluster_n - 1)),
        group(smaller(args.raster_group, clusters_m)),
        units(static_cast<u32>(clusters_m) * static_cast<u32>(clusters_n) *
              static_cast<u32>(args.split_k)) {
    const u32 k_iterations = ceil_div(args.k, Shape::kTileK);
    share = args.split_k == 1 ? k_iterations : k_iterations / args.split_k;
    remainder = k_iterations - share * args.split_k;
  }

  // CTAs of a cluster are neighbours.
  __device__ __forceinline__ u32 rank() const { return blockIdx.x & is_clustered(args); }
  // This CTA's place in its cluster down the rows of C, or along its columns.
  __device__ __forceinline__ int rank_m() const { return blockIdx.x & (args.cluster_m - 1); }
  __device__ __forceinline__ int rank_n() const { return blockIdx.x & (args.cluster_n - 1); }

  // This cluster's first unit, and how far on its next one is.
  __device__ __forceinline__ u32 first() const { return blockIdx.x >> is_clustered(args); }
  __device__ __forceinline__ u32 stride() const { return gridDim.x >> is_clustered(args); }

  // floor(split * k_iterations / split_k), by a division of 32 bits.
  __device__ __forceinline__ int first_iteration(u32 split) const {
    return static_cast<int>(split * share + split * remainder / args.split_k);
  }

  __device__ __forceinline__ Unit unit(u32 index) const {
    Unit unit;
    int cluster = static_cast<int>(index);
    unit.split = 0;
    unit.k_begin = 0;
    unit.k_end = static_cast<int>(share);
    if (args.split_k != 1) {  // divisions take their time before the first load
      unit.split = static_cast<int>(index % static_cast<u32>(args.split_k));
      cluster = static_cast<int>(index / static_cast<u32>(args.split_k));
      unit.k_begin = first_iteration(unit.split);
      unit.k_end = first_iteration(unit.split + 1);
    }
    const int group_clusters = group * clusters_n;
    const int first_row = cluster / group_clusters * group;
    const int rows = smaller(group, clusters_m - first_row);
    const int within = cluster % group_clusters;
    unit.tile = (cluster << is_clustered(args)) + static_cast<int>(rank());
    unit.row = ((first_row + within % rows) * args.cluster_m + rank_m()) * Shape::kTileM;
    unit.column = (within / rows * args.cluster_n + rank_n()) * Shape::kTileN;
    return unit;
  }
};

}  // namespace warpwright
