// From accumulators to C: split-K reduction, rounding, staging, store.
#pragma once

#include "progress.cuh"
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
    const GemmMemory<Shape>& memory, const Unit& unit, int warpgroup, int thread,
    Progress& progress) {
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
  progress.at(kReduces);
  ptx::named_barrier(kReduceBarrier, Shape::kMathThreads);
  if (warpgroup == 0 && thread == 0) {
    // atomicInc wraps to zero at the last arrival: the counter is ready for the next launch.
    // The other threads' partials reached this one through the barrier; this fence publishes
    // them with the count.
    ptx::fence_gpu();
    const u32 last = static_cast<u32>(args.split_k - 1);
    const bool is_last = atomicInc(args.counters + unit.tile, last) == last;
    ptx::fence_gpu();
    ptx::store_shared(memory.flag(), static_cast<u32>(is_last));
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

// A piece of C on its way through a staging buffer: 64 rows of kColumns elements. Rows of 128, 64
// and 32 bytes have their 16-byte quads swizzled over their own width, as TMA expects.
template <typename Shape, typename Element_>
struct Staged {
  using Element = Element_;
  // Four bytes an element: a row is no longer than a swizzle, and half of a piece.
  static constexpr int kColumns = sizeof(Element) == 2 ? Shape::kPieceN : Shape::kSwizzleN / 2;
  static constexpr int kRowBytes = kColumns * static_cast<int>(sizeof(Element));
  static constexpr u32 kQuads = kRowBytes / 16;
  static constexpr int kPerQuad = 16 / static_cast<int>(sizeof(Element));
  static constexpr bool kSwizzled = kQuads == 8 || kQuads == 4 || kQuads == 2;

  static __device__ __forceinline__ u32 swizzle(u32 row) {
    return kSwizzled ? (row * kRowBytes / 128) % kQuads : 0;
  }
  static __device__ __forceinline__ u32 address(u32 staging, u32 row, u32 column) {
    const u32 quad = (column / kPerQuad) ^ swizzle(row);
    return staging + row * kRowBytes + quad * 16 + column % kPerQuad * sizeof(Element);
  }
};

// Rounds 8×8 blocks into the staging buffer by one instruction: two down, kAcross to the right.
template <typename Element, bool kAdd, int kAcross>
__device__ __forceinline__ void stage_blocks(const float* acc, u32 address, float beta) {
  u32 packed[2 * kAcross];
  if constexpr (kAdd) ptx::ldmatrix(address, packed);
#pragma unroll
  for (int i = 0; i < 2 * kAcross; ++i) {
    float low = acc[2 * i], high = acc[2 * i + 1];
    if constexpr (kAdd) {
      float old_low, old_high;
      Element::unpack(packed[i], old_low, old_high);
      low += beta * old_low;
      high += beta * old_high;
    }
    packed[i] = Element::pack(low, high);
  }
  ptx::stmatrix(address, packed);
}

// Rounds this warp's 16 rows of a piece into the staging buffer; with kAdd, what is there times
// beta is added first.
template <typename Shape, typename Element, bool kAdd>
__device__ __forceinline__ void stage16(const float* acc, u32 staging, int thread, float beta) {
  using Piece = Staged<Shape, unsigned short>;
  const u32 lane = thread % kWarpThreads;
  // Lane l addresses row l % 8 of block l / 8; blocks go down first, then right.
  const u32 row = thread / kWarpThreads * 16 + lane % 16;
  const u32 row_address = staging + row * Piece::kRowBytes;
  const u32 swizzle = Piece::swizzle(row);
#pragma unroll
  for (u32 quad = 0; quad + 1 < Piece::kQuads; quad += 2) {
    const u32 address = row_address + ((quad + lane / 16) ^ swizzle) * 16;
    stage_blocks<Element, kAdd, 2>(acc + quad * 4, address, beta);
  }
  if constexpr (Piece::kQuads % 2 == 1) {
    constexpr u32 kLast = Piece::kQuads - 1;
    stage_blocks<Element, kAdd, 1>(acc + kLast * 4, row_address + (kLast ^ swizzle) * 16, beta);
  }
}

// The same for fp32, which accumulators are already.
template <typename Shape, bool kAdd>
__device__ __forceinline__ void stage32(const float* acc, u32 staging, int thread, float beta) {
  using Piece = Staged<Shape, u32>;
  const u32 lane = thread % kWarpThreads;
#pragma unroll
  for (int part = 0; part < Piece::kColumns / 8; ++part) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 row = thread / kWarpThreads * 16 + half * 8 + lane / 4;
      const u32 address = Piece::address(staging, row, part * 8 + lane % 4 * 2);
      float x = acc[part * 4 + half * 2], y = acc[part * 4 + half * 2 + 1];
      if constexpr (kAdd) {
        float old_x, old_y;
        ptx::load_shared_f32x2(address, old_x, old_y);
        x += beta * old_x;
        y += beta * old_y;
      }
      ptx::store_shared_f32x2(address, x, y);
    }
  }
}

// Copies this thread's share of the part of a piece that lies inside C, from or to the staging
// buffer; neighbouring threads have neighbouring elements.
template <typename Piece, bool kToC>
__device__ __forceinline__ void copy_elements(const GemmArgs& args, u32 staging, int row,
                                              int column, int thread) {
  using Element = typename Piece::Element;
  const int rows = smaller(kBlockRows, args.m - row);
  const int columns = smaller(Piece::kColumns, args.n - column);
  Element* c = static_cast<Element*>(args.c) + static_cast<i64>(row) * args.ldc + column;
#pragma unroll 2
  for (int i = thread; i < kBlockRows * Piece::kColumns; i += kWarpgroupThreads) {
    const int r = i / Piece::kColumns;
    const int at = i % Piece::kColumns;
    if (r < rows && at < columns) {
      const u32 address = Piece::address(staging, r, at);
      Element* element = c + r * args.ldc + at;
      if constexpr (kToC) {
        ptx::copy_from_shared(element, address);
      } else {
        ptx::store_shared(address, *element);
      }
    }
  }
}

// Sends a staged piece on its way by TMA. One barrier is enough: the storing thread passes it
// only after the store before has read its buffer, which is the one filled next.
__device__ __forceinline__ void send_piece(const TensorMap& map_c, u32 staging, int row,
                                           int column, u32 barrier, int thread) {
  ptx::fence_async_proxy();
  if (thread == 0) ptx::tma_store_wait_read();
  __syncwarp();
  ptx::named_barrier(barrier, kWarpgroupThreads);
  if (thread == 0) {
    ptx::tma_store(map_c, staging, column, row);
    ptx::tma_store_commit();
  }
  __syncwarp();
}

// What most launches need: C in the operands' own type, by TMA, with alpha 1 and beta 0.
template <typename Shape>
struct PlainStore {
  using Piece = Staged<Shape, unsigned short>;

  static __device__ __forceinline__ void piece(const float* acc, const GemmArgs&,
                                               const TensorMap& map_c, u32 staging, int row,
                                               int column, u32 barrier, int thread) {
    stage16<Shape, typename Shape::Element, false>(acc, staging, thread, 0.0f);
    send_piece(map_c, staging, row, column, barrier, thread);
  }
};

// Everything else. Where beta is not 0 the warpgroup first brings C's piece into the buffer, and
// a barrier of its own follows that.
template <typename Shape, typename Element>
struct GeneralStore {
  using Piece = Staged<Shape, Element>;

  static __device__ __forceinline__ void piece(const float* acc, const GemmArgs& args,
                                               const TensorMap& map_c, u32 staging, int row,
                                               int column, u32 barrier, int thread) {
    if (args.beta != 0.0f) {
      copy_elements<Piece, false>(args, staging, row, column, thread);
      __syncwarp();
      ptx::named_barrier(barrier, kWarpgroupThreads);
      stage<true>(acc, staging, args, thread);
    } else {
      stage<false>(acc, staging, args, thread);
    }
    if (args.c_by_tma) {
      send_piece(map_c, staging, row, column, barrier, thread);
    } else {
      ptx::named_barrier(barrier, kWarpgroupThreads);
      copy_elements<Piece, true>(args, staging, row, column, thread);
      __syncwarp();
    }
  }

 private:
  template <bool kAdd>
  static __device__ __forceinline__ void stage(const float* acc, u32 staging,
                                               const GemmArgs& args, int thread) {
    if constexpr (sizeof(Element) == 4) {
      stage32<Shape, kAdd>(acc, staging, thread, args.beta);
    } else if (args.out_type == kOutFp16) {
      stage16<Shape, Fp16, kAdd>(acc, staging, thread, args.beta);
    } else {
      stage16<Shape, Bf16, kAdd>(acc, staging, thread, args.beta);
    }
  }
};

// Writes a warpgroup's part of the tile, one piece of 64 rows after the other through two
// staging buffers: while TMA reads one, the warpgroup fills the other. `buffer` lives on from
// unit to unit.
template <typename Shape, typename Store>
__device__ __forceinline__ void store_pieces(
    const float (&acc)[Shape::kBlocks][Shape::kAccumulators], const GemmArgs& args,
    const TensorMap& map_c, const GemmMemory<Shape>& memory, const Unit& unit, int warpgroup,
    int thread, int& buffer) {
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
    const int row_offset = (warpgroup * Shape::kBlocks + block) * kBlockRows;
#pragma unroll
    for (int piece = 0; piece < Shape::kTileN / Store::Piece::kColumns; ++piece) {
      const int column_offset = piece * Store::Piece::kColumns;
      // Offsets are compared, not sums: row + offset may pass 2^31 where m is close to it.
      if (row_offset < args.m - unit.row && column_offset < args.n - unit.column) {
        Store::piece(&acc[block][column_offset / 2], args, map_c,
                     memory.staging(warpgroup, buffer), unit.row + row_offset,
                     unit.column + column_offset, 1 + warpgroup, thread);
        buffer ^= 1;
      }
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void store_tile(
    float (&acc)[Shape::kBlocks][Shape::kAccumulators], const GemmArgs& args,
    const TensorMap& map_c, const GemmMemory<Shape>& memory, const Unit& unit, int warpgroup,
    int thread, int& buffer) {
  if (args.plain) {
    store_pieces<Shape, PlainStore<Shape>>(acc, args, map_c, memory, unit, warpgroup, thread,
                                           buffer);
    return;
  }
  if (args.alpha != 1.0f) {
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < Shape::kAccumulators; ++i) acc[block][i] *= args.alpha;
    }
  }
  // A swizzled row of 8 columns has no whole 8×8 block in its half: no fp32.
  if constexpr (Shape::kSwizzleN >= 16) {
    if (args.out_type == kOutFp32) {
      store_pieces<Shape, GeneralStore<Shape, u32>>(acc, args, map_c, memory, unit, warpgroup,
                                                    thread, buffer);
      return;
    }
  }
  store_pieces<Shape, GeneralStore<Shape, unsigned short>>(acc, args, map_c, memory, unit,
                                                           warpgroup, thread, buffer);
}

}  // namespace warpwright
