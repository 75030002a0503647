// Persistent warp-specialised GEMM for Hopper: C = alpha·A·B + beta·C with A m×k and B k×n, each
// contiguous along either axis, 16-bit elements, fp32 accumulation; C row-major.
//
// MATH warpgroups come first in the block, DMA warps last. DMA warps fill a ring of slots by
// TMA; MATH warpgroups multiply from it with wgmma and store the tile. A slot's full barrier
// takes one arrival per DMA warp and the bytes TMA delivers, its empty barrier one per MATH
// warp: a warp's wait on wgmma speaks for its own quarter of the instruction only.
//
// The CTAs of a cluster walk tiles of the same row or column in step. Each loads half of the tile
// they share and multicasts it, so that a slot may be filled once every MATH warp of the
// cluster has given it back.
//
// A launch may begin while the one before it in the stream runs (programmatic dependent launch): it
// sets its barriers up, and touches no memory that others see before that one has ended.
//
// Rows of a tile beyond the (cut) TMA box keep whatever shared memory held. They feed only
// rows and columns of the product that are never stored.
#pragma once

#include "progress.cuh"
#include "sm90_gemm_args.cuh"
#include "sm90_gemm_epilogue.cuh"
#include "wgmma.cuh"

namespace warpwright {

// A launch that contradicts the compiled kernel would hang or corrupt memory; it traps instead.
// MATH warps look, while the first loads are on their way: only they write to memory.
template <typename Shape>
__device__ __forceinline__ bool launch_is_sound(const GemmArgs& args, u32 base) {
  const int dma_threads =
      Shape::kRegisterSplit ? kWarpgroupThreads : kWarpThreads * args.dma_warps;
  return args.stages >= (Shape::kMmaInFlight ? 3 : 2) && args.stages <= kMaxStages &&
         (args.dma_warps == 1 || args.dma_warps == 2) && args.split_k >= 1 &&
         args.split_k <= kMaxSplits &&
         args.split_k <= ceil_div(args.k, Shape::kTileK) && args.raster_group >= 1 &&
         (Shape::kSwizzleN >= 16 || args.out_type != kOutFp32) && args.cluster_m >= 1 &&
         args.cluster_n >= 1 && args.cluster_m * args.cluster_n <= kClusterMax &&
         ptx::cluster_ctas() == static_cast<u32>(args.cluster_m * args.cluster_n) &&
         (ceil_div(args.m, Shape::kTileM) & (args.cluster_m - 1)) == 0 &&
         (ceil_div(args.n, Shape::kTileN) & (args.cluster_n - 1)) == 0 &&
         static_cast<int>(blockDim.x) == Shape::kMathThreads + dma_threads &&
         static_cast<int>(ptx::dynamic_smem_bytes()) >= Shape::smem_bytes(args.stages) &&
         base % kTileAlignment == 0;
}

// Where a box starts along m or n, in TMA's signed 32 bits: at 2^31 - 1 if it would start beyond, as
// the last tile of an extent next to that may. No extent has an element there. Without a minimum,
// which takes the role more registers than setmaxnreg leaves it.
__device__ __forceinline__ int coordinate(u32 start) {
  const int beyond = static_cast<int>(start) >> 31;  // all bits or none
  return (static_cast<int>(start) | beyond) & 0x7fffffff;
}

// Loads this CTA's part of a tile of A or B into a slot: `copies` boxes, each of kWidth elements
// along the axis that is contiguous and of so many lines; `first` is the first of these lines.
// With kShared, CTAs of the cluster load parts of the tile and each goes to all of them.
// `along_k` and `across`: the tile's first element along k and along m or n.
template <bool kMajor, int kWidth, int kSubtileBytes, bool kShared, bool kTold>
__device__ __forceinline__ void load_tile(u32 tile, const TensorMap& map, u32 full, int copies,
                                          int first, int along_k, int across, u64 policy) {
  u32 to = tile + first * kWidth * kElementBytes;
  // No tile goes on beyond 2^31 along k: that is a multiple of its depth.
  u32 next = kMajor ? along_k : across;
  const u32 line = (kMajor ? across : along_k) + static_cast<u32>(first);
  const int row = kMajor && kShared ? coordinate(line) : static_cast<int>(line);
  for (int copy = 0; copy < copies; ++copy, to += kSubtileBytes, next += kWidth) {
    const int column = kMajor ? static_cast<int>(next) : coordinate(next);
    if constexpr (kShared && kTold) {
      ptx::tma_load_multicast(to, map, full, column, row, (1 << kClusterMax) - 1, policy);
    } else if constexpr (kShared) {
      ptx::tma_load_multicast(to, map, full, column, row, (1 << kClusterMax) - 1);
    } else if constexpr (kTold) {
      ptx::tma_load(to, map, full, column, row, policy);
    } else {
      ptx::tma_load(to, map, full, column, row);
    }
  }
}

__device__ __forceinline__ u64 cache_policy(int policy) {
  return policy == kEvictFirst ? ptx::evict_first() : ptx::evict_last();
}

// One elected lane of a DMA warp: loads A, B or both of every unit into the ring.
template <typename Shape, bool kSharedA, bool kSharedB, bool kTold>
__device__ __forceinline__ void dma_role(const TensorMap& map_a, const TensorMap& map_b,
                                         const GemmArgs& args, const GemmMemory<Shape>& memory,
                                         bool loads_a, bool loads_b, Progress progress) {
  constexpr int kSubtiles = Shape::kTileK / kSubtileDepth;
  const Schedule<Shape> schedule(args);
  const int first_a = kSharedA ? schedule.rank() * args.a_box_rows : 0;
  const int first_b = kSharedB ? schedule.rank() * args.b_box_rows : 0;
  const int tx_bytes = (loads_a ? args.a_tx_bytes : 0) + (loads_b ? args.b_tx_bytes : 0);
  const u64 policy_a = cache_policy(args.a_policy), policy_b = cache_policy(args.b_policy);
  RingCursor cursor;
  ptx::wait_for_launch_before();
  for (u32 index = schedule.first(); index < schedule.units; index += schedule.stride()) {
    const Unit unit = schedule.unit(index);
    progress.unit(index);
#pragma unroll 1
    for (int iteration = unit.k_begin; iteration < unit.k_end; ++iteration) {
      const int k = iteration * Shape::kTileK;
      const u32 full = memory.full(cursor.slot);
      progress.begin(kWaitsEmpty, cursor.slot);
      ptx::barrier_wait(memory.empty(cursor.slot), cursor.phase ^ 1);
      progress.at(kLoads, cursor.slot);
      ptx::barrier_arrive_expect(full, tx_bytes);
      if (loads_a) {
        load_tile<Shape::kAKMajor, Shape::kWidthA, Shape::kSubtileABytes, kSharedA, kTold>(
            memory.slot_a(cursor.slot), map_a, full, Shape::kAKMajor ? kSubtiles : args.a_copies,
            first_a, k, unit.row, policy_a);
      }
      if (loads_b) {
        load_tile<Shape::kBKMajor, Shape::kWidthB, Shape::kSubtileBBytes, kSharedB, kTold>(
            memory.slot_b(cursor.slot), map_b, full, Shape::kBKMajor ? kSubtiles : args.b_copies,
            first_b, k, unit.column, policy_b);
      }
      cursor.advance(memory.stages);
    }
  }
  progress.at(kDone);
}

// The DMA role of this launch's cluster, worked out once and not for every load.
template <typename Shape, bool kTold>
__device__ __forceinline__ void dma_role_of(const TensorMap& map_a, const TensorMap& map_b,
                                            const GemmArgs& args, const GemmMemory<Shape>& memory,
                                            bool loads_a, bool loads_b, Progress progress) {
  if (args.cluster_n > 1) {
    dma_role<Shape, true, false, kTold>(map_a, map_b, args, memory, loads_a, loads_b, progress);
  } else if (args.cluster_m > 1) {
    dma_role<Shape, false, true, kTold>(map_a, map_b, args, memory, loads_a, loads_b, progress);
  } else {
    dma_role<Shape, false, false, kTold>(map_a, map_b, args, memory, loads_a, loads_b, progress);
  }
}

// Issues the wgmma group of one slot for this warpgroup's row blocks.
template <typename Shape>
__device__ __forceinline__ void multiply_slot(
    float (&acc)[Shape::kBlocks][Shape::kAccumulators], const GemmMemory<Shape>& memory, int slot,
    int warpgroup, u32 add) {
  using Mma = wgmma::Mma<typename Shape::Element, Shape::kTileN>;
  using A = wgmma::Operand<Shape::kAKMajor, Shape::kWidthA, Shape::kSubtileABytes>;
  using B = wgmma::Operand<Shape::kBKMajor, Shape::kWidthB, Shape::kSubtileBBytes>;
  // A block of 64 rows is part of a subtile, or all of it.
  constexpr u32 kBlockBytes = kBlockRows * kSubtileDepth * kElementBytes;
  constexpr u32 kNextBlock = Shape::kAKMajor ? kBlockBytes : Shape::kSubtileABytes;
  constexpr int kSteps = kSubtileDepth / wgmma::kDepth;  // along k in a subtile
  const u64 a = A::descriptor(memory.slot_a(slot) + warpgroup * Shape::kBlocks * kNextBlock);
  const u64 b = B::descriptor(memory.slot_b(slot));
  wgmma::fence();
#pragma unroll
  for (int step = 0; step < Shape::kTileK / static_cast<int>(wgmma::kDepth); ++step) {
    const u32 a_step = Shape::kAKMajor
        ? step / kSteps * Shape::kSubtileABytes + step % kSteps * A::kStepBytes
        : step * A::kStepBytes;
    const u32 b_step = Shape::kBKMajor
        ? step / kSteps * Shape::kSubtileBBytes + step % kSteps * B::kStepBytes
        : step * B::kStepBytes;
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) {
      Mma::template issue<!Shape::kAKMajor, !Shape::kBKMajor>(
          acc[block], a + wgmma::descriptor_step(block * kNextBlock + a_step),
          b + wgmma::descriptor_step(b_step), step == 0 ? add : 1);
    }
  }
  wgmma::commit();
}

// Gives a slot back: one arrival of this warp here, and one at every other CTA of the cluster,
// whose multicast fills it too. Nothing is kept for it between slots: registers are short.
__device__ __forceinline__ void release(const GemmArgs& args, u32 empty) {
  const u32 lane = threadIdx.x % kWarpThreads;
  if (lane == 0) ptx::barrier_arrive(empty);
  if (is_clustered(args) && lane == 1) ptx::barrier_arrive_remote(empty, blockIdx.x % 2 ^ 1);
}

template <typename Shape>
__device__ __forceinline__ void math_role(const TensorMap& map_c, const GemmArgs& args,
                                          const GemmMemory<Shape>& memory, int warpgroup,
                                          Progress progress) {
  const int thread = threadIdx.x % kWarpgroupThreads;
  const Schedule<Shape> schedule(args);
  RingCursor cursor;
  int buffer = 0;
  ptx::wait_for_launch_before();
  float acc[Shape::kBlocks][Shape::kAccumulators];
#pragma unroll 1
  for (u32 index = schedule.first(); index < schedule.units; index += schedule.stride()) {
    const Unit unit = schedule.unit(index);
    progress.unit(index);
    u32 held = 0;  // empty barrier of the slot that the group in flight reads
#pragma unroll 1
    for (int iteration = unit.k_begin; iteration < unit.k_end; ++iteration) {
      const bool first = iteration == unit.k_begin;
      progress.begin(kWaitsFull, cursor.slot);
      ptx::barrier_wait(memory.full(cursor.slot), cursor.phase);
      progress.at(kMultiplies, cursor.slot);
      multiply_slot<Shape>(acc, memory, cursor.slot, warpgroup, !first);
      wgmma::wait<Shape::kMmaInFlight ? 1 : 0>();
      if constexpr (Shape::kMmaInFlight) {
        if (!first) release(args, held);
        held = memory.empty(cursor.slot);
      } else {
        release(args, memory.empty(cursor.slot));
      }
      cursor.advance(memory.stages);
    }
    if constexpr (Shape::kMmaInFlight) {
      wgmma::wait<0>();
      release(args, held);
    }
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) wgmma::pin(acc[block]);
    __syncwarp();
    if (args.split_k > 1 &&
        !reduce_splits<Shape>(acc, args, memory, unit, warpgroup, thread, progress)) {
      continue;
    }
    progress.at(kStores);
    store_tile<Shape>(acc, args, map_c, memory, unit, warpgroup, thread, buffer);
  }
  // Shared memory must outlive the stores that read it; the grid's end completes their writes.
  if (thread == 0) ptx::tma_store_wait_read();
  progress.at(kDone);
}

template <typename Shape>
__device__ __forceinline__ void gemm(const TensorMap& map_a, const TensorMap& map_b,
                                     const TensorMap& map_c, const GemmArgs& args) {
  extern __shared__ __align__(kTileAlignment) unsigned char smem[];
  const GemmMemory<Shape> memory{ptx::shared_address(smem), args.stages};
  // The broadcast tells the compiler that the warp index, and so the role, is uniform.
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
  const int lane = threadIdx.x % kWarpThreads;
  Progress(args.progress, warp, lane == 0).at(kSetUp);
  ptx::let_next_launch_begin();
  if (warp == Shape::kMathWarps) {
    if (lane == 0) {
      ptx::prefetch_tensor_map(map_a);
      ptx::prefetch_tensor_map(map_b);
      ptx::prefetch_tensor_map(map_c);
    }
    if (lane < args.stages) {
      ptx::barrier_init(memory.full(lane), args.dma_warps);
      ptx::barrier_init(memory.empty(lane), Shape::kMathWarps * args.cluster_m * args.cluster_n);
      ptx::fence_barrier_init();
    }
    __syncwarp();
  }
  // A peer may load into this CTA, or arrive at its barriers, once they are initialised.
  if (is_clustered(args)) {
    ptx::cluster_barrier();
  } else {
    __syncthreads();
  }

  if (warp < Shape::kMathWarps) {
    if constexpr (Shape::kRegisterSplit) {
      ptx::take_registers<Shape::kMathRegisters>();
    }
    if (!launch_is_sound<Shape>(args, memory.base)) __trap();
    math_role<Shape>(map_c, args, memory, warp / kWarpgroupWarps,
                     Progress(args.progress, warp, lane == 0));
  } else {
    if constexpr (Shape::kRegisterSplit) {
      ptx::give_registers<Shape::kDmaRegisters>();
    }
    const int dma_warp = warp - Shape::kMathWarps;
    if (dma_warp >= args.dma_warps) {
      Progress(args.progress, warp, lane == 0).at(kDone);
    } else if (ptx::elect_one()) {
      const bool loads_a = dma_warp == 0, loads_b = dma_warp == args.dma_warps - 1;
      const Progress progress(args.progress, warp, true);
      if (args.a_policy == kNotTold) {
        dma_role_of<Shape, false>(map_a, map_b, args, memory, loads_a, loads_b, progress);
      } else {
        dma_role_of<Shape, true>(map_a, map_b, args, memory, loads_a, loads_b, progress);
      }
    }
  }
  // The peer may still load into this CTA or arrive at its barriers: nobody leaves before it is
  // done with both.
  if (is_clustered(args)) ptx::cluster_barrier();
}

}  // namespace warpwright

// The one line that is generated: an entry point for a compile key, and its own account of the
// dynamic shared memory it needs by number of stages, which is read back from the cubin.
// DMA_REGS and MATH_REGS are what setmaxnreg leaves each role, or 0 and 0 for one count for all.
#define WARPWRIGHT_SM90_GEMM(ELEMENT, A_K_MAJOR, B_K_MAJOR, TILE_M, TILE_N, TILE_K, WARPGROUPS,  \
                             DMA_REGS, MATH_REGS, IN_FLIGHT)                                     \
  using WarpwrightShape =                                                                        \
      warpwright::GemmShape<warpwright::ELEMENT, A_K_MAJOR, B_K_MAJOR, TILE_M, TILE_N, TILE_K,   \
                            WARPGROUPS, DMA_REGS, MATH_REGS, IN_FLIGHT>;                         \
  extern "C" __constant__ int sm90_gemm_smem_bytes[warpwright::kMaxStages + 1] = {               \
      WarpwrightShape::smem_bytes(0),  WarpwrightShape::smem_bytes(1),                           \
      WarpwrightShape::smem_bytes(2),  WarpwrightShape::smem_bytes(3),                           \
      WarpwrightShape::smem_bytes(4),  WarpwrightShape::smem_bytes(5),                           \
      WarpwrightShape::smem_bytes(6),  WarpwrightShape::smem_bytes(7),                           \
      WarpwrightShape::smem_bytes(8),  WarpwrightShape::smem_bytes(9),                           \
      WarpwrightShape::smem_bytes(10), WarpwrightShape::smem_bytes(11),                          \
      WarpwrightShape::smem_bytes(12)};                                                          \
  extern "C" __global__ void __launch_bounds__(WarpwrightShape::kMaxThreads, 1) sm90_gemm(       \
      const __grid_constant__ warpwright::TensorMap a,                                           \
      const __grid_constant__ warpwright::TensorMap b,                                           \
      const __grid_constant__ warpwright::TensorMap c,                                           \
      const __grid_constant__ warpwright::GemmArgs args) {                                       \
    warpwright::gemm<WarpwrightShape>(a, b, c, args);                                            \
  }
