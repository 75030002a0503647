// norm_activation by warps that are all alike and load for themselves: `plain` reads a row three
// times, `strong` once into registers.
#pragma once

#include "norm_math.cuh"

namespace warpwright::norm {

// One warp for each row, three passes over memory: mean, squares around it, transformation.
// kBytes is what a lane loads at a time; every row starts on a multiple of it.
template <class T, int kNorm, int kActivation, int kBytes, int kWarps>
struct PlainRows {
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kSlotBytes = 0, kFixedBytes = 0;
  static constexpr int kEach = kBytes / T::kBytes;
  static constexpr int kAtOnce = kBatch / kEach;
  static constexpr u32 kBlock = 64 / kEach;  // vectors of a lane whose sum is taken apart from the
                                             // others', so that sums of long rows stay exact enough

  using V = Vector<kBytes>;

  static __device__ __forceinline__ void run(const Args& args, char*) {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const u32 vectors = args.width / kEach;
    const float inverse = 1.0f / static_cast<float>(args.width);
    const Schedule schedule(args);
    for (u32 k = 0; k < schedule.count; ++k) {
      const i64 row = schedule.unit(k) * kWarps + warp;
      if (row >= args.rows) continue;
      const V* x = static_cast<const V*>(args.x) + row * vectors;
      V* y = static_cast<V*>(args.y) + row * vectors;
      Moments moments{0.0f, 0.0f};
      if (kNorm == kLayer) moments.mean = warp_sum(sum<false>(x, vectors, lane, 0.0f)) * inverse;
      const float squares = warp_sum(sum<true>(x, vectors, lane, moments.mean));
      moments.scale = rsqrtf(fmaf(squares, inverse, args.eps));
      for (u32 first = lane; first < vectors; first += kAtOnce * kWarp) {
        V raw[kAtOnce];
#pragma unroll
        for (int v = 0; v < kAtOnce; ++v) {
          raw[v] = first + v * kWarp < vectors ? load_cached(x + first + v * kWarp) : zeros<kBytes>();
        }
        transform<T, kActivation>(raw, moments, args, first, kWarp, vectors);
#pragma unroll
        for (int v = 0; v < kAtOnce; ++v) {
          if (first + v * kWarp < vectors) y[first + v * kWarp] = raw[v];
        }
      }
    }
  }

 private:
  // A lane's sum over its elements, or of their squares around `mean`.
  template <bool kSquares>
  static __device__ __forceinline__ float sum(const V* x, u32 vectors, int lane, float mean) {
    float total = 0.0f;
    for (u32 block = lane; block < vectors; block += kBlock * kWarp) {
      const u32 end = min(vectors, block + kBlock * kWarp);
      float part = 0.0f;
#pragma unroll 4
      for (u32 at = block; at < end; at += kWarp) {
        float each[kEach];
        unpack<T>(load_cached(x + at), each);
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          part = kSquares ? fmaf(each[i] - mean, each[i] - mean, part) : part + each[i];
        }
      }
      total += part;
    }
    return total;
  }
};

// A row in the registers of kTeam warps, kVectors vectors of a lane: statistics in two passes over
// them, then the transformation. The vectors lie kStep apart, so that a warp's accesses are whole.
template <class T, int kNorm, int kActivation, int kBytes, int kTeam, int kVectors>
struct RegisterRow {
  static constexpr int kEach = kBytes / T::kBytes;
  static constexpr int kStep = kTeam * kWarp;
  static constexpr int kAtOnce = kVectors * kEach < kBatch ? kVectors : kBatch / kEach;
  static_assert(kVectors % kAtOnce == 0, "vectors come in whole batches");

  using V = Vector<kBytes>;
  V raw[kVectors];

  __device__ __forceinline__ void forget() {
    if constexpr (T::kBytes < 4) {
      const u32 zero = hidden_zero();
#pragma unroll
      for (int v = 0; v < kVectors; ++v) norm::forget(raw[v], zero);
    }
  }

  // `share` of each element: itself, or its square around the mean.
  template <class Share>
  __device__ __forceinline__ float total(u32 first, u32 vectors, Share share) const {
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float x[kEach];
      unpack<T>(raw[v], x);
      const bool inside = first + v * kStep < vectors;
      float part = 0.0f;
#pragma unroll
      for (int i = 0; i < kEach; ++i) part = share(x[i], part);
      sum += inside ? part : 0.0f;
    }
    return sum;
  }

  template <class Sharers>
  __device__ __forceinline__ Moments moments(Sharers& team, const Args& args, u32 vectors) {
    const float inverse = 1.0f / static_cast<float>(args.width);
    const u32 first = team.index();
    float mean = 0.0f;
    if constexpr (kNorm == kLayer) {
      mean = team.sum(total(first, vectors, [](float x, float sum) { return sum + x; })) * inverse;
      forget();
    }
    const float squares = team.sum(total(first, vectors, [mean](float x, float sum) {
      return fmaf(x - mean, x - mean, sum);
    }));
    forget();
    return {mean, rsqrtf(fmaf(squares, inverse, args.eps))};
  }

  template <class Sharers>
  __device__ __forceinline__ void finish(Sharers& team, const Args& args, u32 vectors, V* y) {
    const Moments found = moments(team, args, vectors);
#pragma unroll
    for (int v = 0; v < kVectors; v += kAtOnce) {
      if (v * kStep + team.warp * kWarp >= vectors) break;
      V batch[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) batch[i] = raw[v + i];
      const u32 first = team.index() + v * kStep;
      transform<T, kActivation>(batch, found, args, first, kStep, vectors);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i * kStep < vectors) y[first + i * kStep] = batch[i];
      }
    }
  }
};

// kTeam of a block's kWarps warps take a row; its loads are all on their way before the first is
// needed.
template <class T, int kNorm, int kActivation, int kBytes, int kWarps, int kTeam, int kVectors>
struct StrongRows {
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kTeams = kWarps / kTeam;
  static constexpr int kSlotBytes = 0;
  using Sharers = Team<kTeam, kTeams>;
  static constexpr int kFixedBytes = kTeams * Sharers::kScratchBytes;
  static_assert(kWarps % kTeam == 0, "teams take whole shares of the block");
  static_assert(kTeam == 1 || kTeams <= 15, "a named barrier for each team");

  using Row = RegisterRow<T, kNorm, kActivation, kBytes, kTeam, kVectors>;
  using V = Vector<kBytes>;

  static __device__ __forceinline__ void run(const Args& args, char* smem) {
    const int warp = threadIdx.x / kWarp;
    const int number = warp / kTeam;
    Sharers team{reinterpret_cast<float*>(smem) + number * 2 * kTeam, static_cast<u32>(1 + number),
                 warp % kTeam, static_cast<int>(threadIdx.x % kWarp)};
    const u32 vectors = args.width / Row::kEach;
    if (vectors > kVectors * Row::kStep) __trap();
    const Schedule schedule(args);
    for (u32 k = 0; k < schedule.count; ++k) {
      const i64 row = schedule.unit(k) * kTeams + number;
      if (row >= args.rows) continue;
      const V* x = static_cast<const V*>(args.x) + row * vectors;
      Row values;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const u32 at = team.index() + v * Row::kStep;
        values.raw[v] = at < vectors ? load_once(x + at) : zeros<sizeof(V)>();
      }
      values.finish(team, args, vectors, static_cast<V*>(args.y) + row * vectors);
    }
  }
};

// The one entry: a launch that contradicts what was compiled must not run.
template <class Kernel>
__device__ __forceinline__ void launched(const Args& args, char* smem) {
  if (blockDim.x != Kernel::kThreads || ptx::dynamic_smem_bytes() < Kernel::kFixedBytes) __trap();
  Kernel::run(args, smem);
}

}  // namespace warpwright::norm

// `blocks`: of an SM at least, which bounds the registers. The array is read from the cubin: shared
// memory for each slot of the rings besides its chunk, the rest, and the size of the arguments.
#define WARPWRIGHT_NORM(blocks, ...)                                                          \
  namespace warpwright::norm {                                                                \
  using Kernel = __VA_ARGS__;                                                                 \
  }                                                                                           \
  extern "C" __device__ const int norm_activation_smem[] = {                                  \
      warpwright::norm::Kernel::kSlotBytes, warpwright::norm::Kernel::kFixedBytes,            \
      sizeof(warpwright::norm::Args)};                                                        \
  extern "C" __global__ void __launch_bounds__(warpwright::norm::Kernel::kThreads, blocks)    \
      norm_activation(const __grid_constant__ warpwright::norm::Args args) {                  \
    extern __shared__ __align__(128) char smem[];                                             \
    warpwright::norm::launched<warpwright::norm::Kernel>(args, smem);                         \
  }
