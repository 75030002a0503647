// From accumulators to C: split-K reduction, rounding, staging, store.
#pragma once

#include "sm90_gemm_args.cuh"
#include "wgmma.cuh"

namespace warpwright {

constexpr u32 kReduceBarrier = 15;          // all MATH warps; each warpgroup has 1 + its index

// Sums the partial tiles of a unit's output tile. Every CTA writes its own; the one that
// arrives last adds all of them in the order of their splits, so that the sum does not depend
// on which CTA that is. Returns whether this CTA holds the sum. Nobody waits for another CTA.
template <typename Shape>
__device__ __forceinline__ bool reduce_splits(
    float (&acc)[Shape::kBlocks][Shape::kAccumulators], const GemmArgs& args,
    const GemmMemory<Shape>& memory, const Unit& unit, int warpgroup, int thread) {
  constexpr int kQuads = Shape::kAccumulators / 4;
  constexpr i64 kTileFloats = i64{Shape::kTileM} * Shape::kTileN;
  // Layout of a partial tile: [warpgroup][block][quad][thread] of float4, so that a warp
  // writes 512 consecutive bytes.
  float* first = args.workspace + static_cast<i64>(unit.tile) * args.split_k * kTileFloats +
                 (warpgroup * Shape::kBlocks * kQuads * kWarpgroupThreads + thread) * 4;
  float* own = first + unit.split * kTileFloats;
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      ptx::store_global(own + (block * kQuads + quad) * kWarpgroupThreads * 4,
                        &acc[block][4 * quad]);
    }
  }
  ptx::fence_gpu();
  ptx::named_barrier(kReduceBarrier, Shape::kMathThreads);
  if (warpgroup == 0 && thread == 0) {
    // atomicInc wraps to zero at the last arrival: the counter is ready for the next launch.
    // The other threads' partials reached this one through the barrier; this fence publishes
    // them with the count.
    ptx::fence_gpu();
    const u32 last = static_cast<u32>(args.split_k - 1);
    const bool is_last = atomicInc(args.counters + unit.tile, last) == last;
    ptx::fence_gpu();
    ptx::store_shared_u32(memory.flag(), is_last);
  }
  __syncwarp();
  ptx::named_barrier(kReduceBarrier, Shape::kMathThreads);
  if (!ptx::load_shared_u32(memory.flag())) return false;
  ptx::fence_gpu();
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < Shape::kAccumulators; ++i) acc[block][i] = 0.0f;
  }
  // The loads of one split are all in flight at once: the compiler gives them the registers
  // that the launch bounds leave, which sets the kernel's register count where accumulators don't.
#pragma unroll 1
  for (int split = 0; split < args.split_k; ++split, first += kTileFloats) {
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
        ptx::add_global(&acc[block][4 * quad],
                        first + (block * kQuads + quad) * kWarpgroupThreads * 4);
      }
    }
  }
  return true;
}

// Rounds 64×kChunkN accumulators and lays them out in a staging buffer as TMA expects them:
// rows of kChunkN elements, 16-byte pieces swizzled over the row's own width.
template <typename Shape>
__device__ __forceinline__ void stage_chunk(const float* acc, u32 staging, int thread) {
  using Element = typename Shape::Element;
  constexpr u32 kRowBytes = Shape::kChunkN * kElementBytes;
  constexpr u32 kPieces = kRowBytes / 16;
  const u32 lane = thread % kWarpThreads;
  // Lane l addresses row l % 8 of 8×8 block l / 8; blocks go down first, then right.
  const u32 row = thread / kWarpThreads * 16 + lane % 16;
  const u32 swizzle = (row * kRowBytes / 128) % kPieces;
  const u32 row_address = staging + row * kRowBytes;
  if constexpr (kPieces == 1) {
    ptx::stmatrix_x2(row_address, Element::pack(acc[0], acc[1]), Element::pack(acc[2], acc[3]));
  } else {
#pragma unroll
    for (u32 piece = 0; piece < kPieces; piece += 2) {
      const float* d = acc + piece * 4;
      ptx::stmatrix_x4(row_address + ((piece + lane / 16) ^ swizzle) * 16,
                       Element::pack(d[0], d[1]), Element::pack(d[2], d[3]),
                       Element::pack(d[4], d[5]), Element::pack(d[6], d[7]));
    }
  }
}

// Stores the part of a staged chunk that lies inside C, for pitches TMA can't take.
template <typename Shape>
__device__ __forceinline__ void store_elements(const GemmArgs& args, u32 staging, int row,
                                               int column, int thread) {
  constexpr u32 kRowBytes = Shape::kChunkN * kElementBytes;
  constexpr u32 kPieces = kRowBytes / 16;
  const int rows = smaller(kBlockRows, args.m - row);
  const int columns = smaller(Shape::kChunkN, args.n - column);
#pragma unroll 4
  for (int i = thread; i < kBlockRows * Shape::kChunkN; i += kWarpgroupThreads) {
    const int r = i / Shape::kChunkN;
    const int c = i % Shape::kChunkN;
    if (r < rows && c < columns) {
      const u32 swizzle = (r * kRowBytes / 128) % kPieces;
      const u32 piece = (c / 8) ^ swizzle;
      args.c[(static_cast<i64>(row) + r) * args.ldc + column + c] =
          ptx::load_shared_u16(staging + r * kRowBytes + piece * 16 + c % 8 * kElementBytes);
    }
  }
}

// Writes a warpgroup's part of the tile, one 64×kChunkN chunk after the other through two
// staging buffers: while TMA reads one, the warpgroup fills the other. `buffer` lives on from
// unit to unit. One barrier a chunk is enough: the storing thread passes it only after the
// store before has read its buffer, which is the one filled next.
template <typename Shape>
__device__ __forceinline__ void store_tile(
    const float (&acc)[Shape::kBlocks][Shape::kAccumulators], const GemmArgs& args,
    const TensorMap& map_c, const GemmMemory<Shape>& memory, const Unit& unit, int warpgroup,
    int thread, int& buffer) {
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
    const int row_offset = (warpgroup * Shape::kBlocks + block) * kBlockRows;
#pragma unroll
    for (int chunk = 0; chunk < Shape::kTileN / Shape::kChunkN; ++chunk) {
      const int column_offset = chunk * Shape::kChunkN;
      // Offsets are compared, not sums: row + offset may pass 2^31 where m is close to it.
      if (row_offset < args.m - unit.row && column_offset < args.n - unit.column) {
        const int row = unit.row + row_offset;
        const int column = unit.column + column_offset;
        const u32 staging = memory.staging(warpgroup, buffer);
        stage_chunk<Shape>(&acc[block][column_offset / 2], staging, thread);
        if (args.c_by_tma) {
          ptx::fence_async_proxy();
          if (thread == 0) ptx::tma_store_wait_read();
          __syncwarp();
          ptx::named_barrier(1 + warpgroup, kWarpgroupThreads);
          if (thread == 0) {
            ptx::tma_store(map_c, staging, column, row);
            ptx::tma_store_commit();
          }
          __syncwarp();
        } else {
          ptx::named_barrier(1 + warpgroup, kWarpgroupThreads);
          store_elements<Shape>(args, staging, row, column, thread);
          __syncwarp();
        }
        buffer ^= 1;
      }
    }
  }
}

}  // namespace warpwright
