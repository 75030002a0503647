// Persistent warp-specialised GEMM for Hopper: C = A·Bᵀ with A m×k and B n×k, both K-major,
// 16-bit elements, fp32 accumulation.
//
// MATH warpgroups come first in the block, DMA warps last. DMA warps fill a ring of slots by
// TMA; MATH warpgroups multiply from it with wgmma and store the tile. A slot's full barrier
// takes one arrival per DMA warp and the bytes TMA delivers, its empty barrier one per MATH
// warp: a warp's wait on wgmma speaks for its own quarter of the instruction only.
//
// Rows of a tile beyond the (cut) TMA box keep whatever shared memory held. They feed only
// rows and columns of the product that are never stored.
#pragma once

#include "sm90_gemm_args.cuh"
#include "sm90_gemm_epilogue.cuh"
#include "wgmma.cuh"

namespace warpwright {

// A launch that contradicts the compiled kernel would hang or corrupt memory; it traps instead.
template <typename Shape>
__device__ __forceinline__ bool launch_is_sound(const GemmArgs& args, u32 base) {
  const int dma_threads =
      Shape::kRegisterSplit ? kWarpgroupThreads : kWarpThreads * args.dma_warps;
  return args.stages >= (Shape::kMmaInFlight ? 3 : 2) && args.stages <= kMaxStages &&
         (args.dma_warps == 1 || args.dma_warps == 2) && args.split_k >= 1 &&
         args.split_k <= kMaxSplits &&
         args.split_k <= ceil_div(args.k, Shape::kTileK) && args.raster_group >= 1 &&
         static_cast<int>(blockDim.x) == Shape::kMathThreads + dma_threads &&
         static_cast<int>(ptx::dynamic_smem_bytes()) >= Shape::smem_bytes(args.stages) &&
         base % kTileAlignment == 0;
}

// One elected lane of a DMA warp: loads A, B or both of every unit into the ring.
template <typename Shape>
__device__ __forceinline__ void dma_role(const TensorMap& map_a, const TensorMap& map_b,
                                         const GemmArgs& args, const GemmMemory<Shape>& memory,
                                         bool loads_a, bool loads_b) {
  // The host cuts the boxes of A and B to the problem, rounded up to 8 rows.
  const int a_rows = args.m >= Shape::kTileM ? Shape::kTileM : ceil_div(args.m, 8) * 8;
  const int a_bytes = a_rows * Shape::kTileK * kElementBytes;
  const int tx_bytes =
      (loads_a ? a_bytes : 0) + (loads_b ? args.stage_tx_bytes - a_bytes : 0);
  const Schedule<Shape> schedule(args);
  RingCursor cursor;
  for (u32 index = blockIdx.x; index < schedule.units; index += gridDim.x) {
    const Unit unit = schedule.unit(index);
#pragma unroll 1
    for (int iteration = unit.k_begin; iteration < unit.k_end; ++iteration) {
      const int k = iteration * Shape::kTileK;
      const u32 full = memory.full(cursor.slot);
      ptx::barrier_wait(memory.empty(cursor.slot), cursor.phase ^ 1);
      ptx::barrier_arrive_expect(full, tx_bytes);
#pragma unroll
      for (int subtile = 0; subtile < Shape::kSubtiles; ++subtile) {
        if (loads_a) {
          ptx::tma_load(memory.slot_a(cursor.slot) + subtile * Shape::kSubtileABytes, map_a, full,
                        k + subtile * kSubtileDepth, unit.row);
        }
        if (loads_b) {
          ptx::tma_load(memory.slot_b(cursor.slot) + subtile * Shape::kSubtileBBytes, map_b, full,
                        k + subtile * kSubtileDepth, unit.column);
        }
      }
      cursor.advance(memory.stages);
    }
  }
}

// Issues the wgmma group of one slot for this warpgroup's row blocks.
template <typename Shape>
__device__ __forceinline__ void multiply_slot(
    float (&acc)[Shape::kBlocks][Shape::kAccumulators], const GemmMemory<Shape>& memory, int slot,
    int warpgroup, u32 add) {
  using Mma = wgmma::Mma<typename Shape::Element, Shape::kTileN>;
  constexpr u32 kBlockBytes = kBlockRows * wgmma::kSwizzleRowBytes;
  const u64 a = wgmma::descriptor(memory.slot_a(slot) + warpgroup * Shape::kBlocks * kBlockBytes);
  const u64 b = wgmma::descriptor(memory.slot_b(slot));
  wgmma::fence();
#pragma unroll
  for (int step = 0; step < Shape::kTileK / static_cast<int>(wgmma::kDepth); ++step) {
    constexpr int kSteps = kSubtileDepth / wgmma::kDepth;
    const u32 along_k = step % kSteps * wgmma::kDepth * kElementBytes;
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) {
      Mma::issue(acc[block],
                 a + wgmma::descriptor_step(step / kSteps * Shape::kSubtileABytes +
                                            block * kBlockBytes + along_k),
                 b + wgmma::descriptor_step(step / kSteps * Shape::kSubtileBBytes + along_k),
                 step == 0 ? add : 1);
    }
  }
  wgmma::commit();
}

template <typename Shape>
__device__ __forceinline__ void math_role(const TensorMap& map_c, const GemmArgs& args,
                                          const GemmMemory<Shape>& memory, int warpgroup) {
  const int thread = threadIdx.x % kWarpgroupThreads;
  const bool releases = thread % kWarpThreads == 0;
  const Schedule<Shape> schedule(args);
  RingCursor cursor;
  int buffer = 0;
  float acc[Shape::kBlocks][Shape::kAccumulators];
#pragma unroll 1
  for (u32 index = blockIdx.x; index < schedule.units; index += gridDim.x) {
    const Unit unit = schedule.unit(index);
    u32 held = 0;  // empty barrier of the slot that the group in flight reads
#pragma unroll 1
    for (int iteration = unit.k_begin; iteration < unit.k_end; ++iteration) {
      const bool first = iteration == unit.k_begin;
      ptx::barrier_wait(memory.full(cursor.slot), cursor.phase);
      multiply_slot<Shape>(acc, memory, cursor.slot, warpgroup, !first);
      wgmma::wait<Shape::kMmaInFlight ? 1 : 0>();
      if constexpr (Shape::kMmaInFlight) {
        if (!first && releases) ptx::barrier_arrive(held);
        held = memory.empty(cursor.slot);
      } else {
        if (releases) ptx::barrier_arrive(memory.empty(cursor.slot));
      }
      cursor.advance(memory.stages);
    }
    if constexpr (Shape::kMmaInFlight) {
      wgmma::wait<0>();
      if (releases) ptx::barrier_arrive(held);
    }
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) wgmma::pin(acc[block]);
    __syncwarp();
    if (args.split_k > 1 &&
        !reduce_splits<Shape>(acc, args, memory, unit, warpgroup, thread)) {
      continue;
    }
    store_tile<Shape>(acc, args, map_c, memory, unit, warpgroup, thread, buffer);
  }
  // Shared memory must outlive the stores that read it; the grid's end completes their writes.
  if (thread == 0) ptx::tma_store_wait_read();
}

template <typename Shape>
__device__ __forceinline__ void gemm(const TensorMap& map_a, const TensorMap& map_b,
                                     const TensorMap& map_c, const GemmArgs& args) {
  extern __shared__ __align__(kTileAlignment) unsigned char smem[];
  const GemmMemory<Shape> memory{ptx::shared_address(smem), args.stages};
  if (!launch_is_sound<Shape>(args, memory.base)) __trap();

  // The broadcast tells the compiler that the warp index, and so the role, is uniform.
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
  const int lane = threadIdx.x % kWarpThreads;
  if (warp == Shape::kMathWarps) {
    if (lane == 0) {
      ptx::prefetch_tensor_map(map_a);
      ptx::prefetch_tensor_map(map_b);
      ptx::prefetch_tensor_map(map_c);
    }
    if (lane < args.stages) {
      ptx::barrier_init(memory.full(lane), args.dma_warps);
      ptx::barrier_init(memory.empty(lane), Shape::kMathWarps);
      ptx::fence_barrier_init();
    }
    __syncwarp();
  }
  __syncthreads();

  if (warp < Shape::kMathWarps) {
    if constexpr (Shape::kRegisterSplit) {
      ptx::take_registers<Shape::kMathRegisters>();
    }
    math_role<Shape>(map_c, args, memory, warp / kWarpgroupWarps);
  } else {
    if constexpr (Shape::kRegisterSplit) {
      ptx::give_registers<Shape::kDmaRegisters>();
    }
    const int dma_warp = warp - Shape::kMathWarps;
    if (dma_warp < args.dma_warps && ptx::elect_one()) {
      dma_role<Shape>(map_a, map_b, args, memory, dma_warp == 0,
                      dma_warp == args.dma_warps - 1);
    }
  }
}

}  // namespace warpwright

// The one line that is generated: an entry point for a compile key, and its own account of the
// dynamic shared memory it needs by number of stages, which is read back from the cubin.
// DMA_REGS and MATH_REGS are what setmaxnreg leaves each role, or 0 and 0 for one count for all.
#define WARPWRIGHT_SM90_GEMM(ELEMENT, TILE_M, TILE_N, TILE_K, WARPGROUPS, DMA_REGS, MATH_REGS,   \
                             IN_FLIGHT)                                                          \
  using WarpwrightShape =                                                                        \
      warpwright::GemmShape<warpwright::ELEMENT, TILE_M, TILE_N, TILE_K, WARPGROUPS, DMA_REGS,   \
                            MATH_REGS, IN_FLIGHT>;                                               \
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
