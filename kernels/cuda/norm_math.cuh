// The transformations, in fp32 over batches of elements, and scale, shift and statistics of a row.
#pragma once

#include "norm_types.cuh"

namespace warpwright::norm {

enum Activation : int { kGelu = 0, kGeluTanh = 1, kSilu = 2, kPoly = 3 };

constexpr int kMaxDegree = 1024;
constexpr int kBatch = 8;   // elements that are transformed together: each load of four
                            // coefficients serves 32 multiply-adds
constexpr int kSteps = 16;  // of a polynomial in one turn of its loop

// c_k = (-1)^k / (k+1)²: the polynomial lies between 0.8 and 1.7 over [-1, 1], for every degree.
struct alignas(16) Coefficients {
  float value[kMaxDegree + kSteps];

  constexpr __device__ Coefficients() : value{} {
    for (int k = 0; k <= kMaxDegree; ++k) {
      const float square = static_cast<float>((k + 1) * (k + 1));
      value[k] = (k % 2 == 0 ? 1.0f : -1.0f) / square;
    }
  }
};
// From the L1 four come at once; constant memory gives one at a time by a computed address.
__device__ const Coefficients coefficients = Coefficients();

// fminf and fmaxf would turn a NaN into a bound.
__device__ __forceinline__ float clamped(float x, float bound) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(y), "f"(-bound));
  return y;
}

// `kCoefficients` steps of Horner's rule, down to degree k.
template <int kCoefficients, int kCount>
__device__ __forceinline__ void horner(float (&sum)[kCount], const float (&u)[kCount], int k) {
  const auto* four = reinterpret_cast<const float4*>(coefficients.value + k);
#pragma unroll
  for (int quarter = kCoefficients / 4 - 1; quarter >= 0; --quarter) {
    const float4 c = __ldg(four + quarter);
    const float each[4] = {c.w, c.z, c.y, c.x};
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum[i] = fmaf(sum[i], u[i], each[step]);
    }
  }
}

// y = s·Σ c_k (s/8)^k, k = 0 to `degree`, s the element held within ±8; by Horner's rule.
template <int kCount>
__device__ __forceinline__ void polynomial(float (&z)[kCount], u32 degree) {
  float sum[kCount];
  int k = static_cast<int>(degree);
  const float highest = __ldg(coefficients.value + k);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    z[i] = clamped(z[i] * 0.125f, 1.0f);
    sum[i] = highest;
  }
#pragma unroll 1
  while (k % (kSteps / 2) != 0) {
    const float c = __ldg(coefficients.value + --k);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum[i] = fmaf(sum[i], z[i], c);
  }
  if (k % kSteps != 0) horner<kSteps / 2>(sum, z, k -= kSteps / 2);
#pragma unroll 1
  while (k > 0) horner<kSteps>(sum, z, k -= kSteps);
#pragma unroll
  for (int i = 0; i < kCount; ++i) z[i] = sum[i] * (z[i] * 8.0f);
}

template <int kActivation, int kCount>
__device__ __forceinline__ void activate(float (&z)[kCount], u32 degree) {
  if constexpr (kActivation == kPoly) {
    polynomial(z, degree);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kActivation == kGelu) {
        z[i] = 0.5f * z[i] * (1.0f + erff(z[i] * 0.70710678f));
      } else {
        // tanh's form is z·sigmoid(2a): the same function without the cancellation of 1 + tanh.
        const float twice = 1.5957691f * fmaf(0.044715f * z[i] * z[i], z[i], z[i]);
        const float exponent = kActivation == kGeluTanh ? twice : z[i];
        z[i] = __fdividef(z[i], 1.0f + __expf(-exponent));
      }
    }
  }
}

// A row's mean (0 for RMS) and what its elements are multiplied with.
struct Moments {
  float mean, scale;
};

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

template <u32 kId>
__device__ __forceinline__ void sync_known(u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "r"(threads) : "memory");
}

// The barrier of an id from 1 to kMost, which all lanes of a warp share. An SM has 64 barriers, and
// a block sets aside as many as the compiler sees ids for: all 16 where an id comes in a register.
template <u32 kMost>
__device__ __forceinline__ void sync_one_of(u32 id, u32 threads) {
  if constexpr (kMost > 1) {
    if (id != kMost) return sync_one_of<kMost - 1>(id, threads);
  }
  sync_known<kMost>(threads);
}

// The warps that share a row. With more than one, each sum takes one barrier of exactly these
// warps and one of two lines of `scratch` in turn: who writes a line again has passed the barrier
// that follows everyone's last read of it.
// A block has kTeams of them.
template <int kWarps, int kTeams>
struct Team {
  float* scratch;  // 2·kWarps floats of shared memory
  u32 barrier;     // named barrier's id, from 1 to kTeams
  int warp;        // within the team
  int lane;
  int line = 0;

  static constexpr int kLanes = kWarps * kWarp;
  static constexpr int kScratchBytes = kWarps > 1 ? 2 * kWarps * 4 : 0;

  __device__ __forceinline__ int index() const { return warp * kWarp + lane; }

  __device__ __forceinline__ float sum(float x) {
    x = warp_sum(x);
    if constexpr (kWarps > 1) {
      float* parts = scratch + line * kWarps;
      line ^= 1;
      if (lane == 0) parts[warp] = x;
      sync();
      x = 0.0f;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) x += parts[i];
    }
    return x;
  }
  __device__ __forceinline__ void sync() const {
    __syncwarp();
    if constexpr (kWarps > 1) sync_one_of<kTeams>(barrier, kLanes);
  }
};

// A lane's share of a row's statistics, over vectors as they come: count, mean and sum of squares
// around it (Chan, Golub and LeVeque), or the sum of squares alone.
template <int kNorm>
struct Running {
  float count = 0.0f, mean = 0.0f, squares = 0.0f;

  template <int kCount>
  __device__ __forceinline__ void add(const float (&x)[kCount]) {
    if constexpr (kNorm == kRms) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) squares = fmaf(x[i], x[i], squares);
      return;
    }
    float sum = 0.0f, around = 0.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += x[i];
    const float own = sum * (1.0f / kCount);
#pragma unroll
    for (int i = 0; i < kCount; ++i) around = fmaf(x[i] - own, x[i] - own, around);
    const float all = count + kCount, apart = own - mean;
    const float share = __fdividef(static_cast<float>(kCount), all);
    mean = fmaf(apart, share, mean);
    squares += fmaf(apart * apart, count * share, around);
    count = all;
  }

  template <class Sharers>
  __device__ __forceinline__ Moments of_row(Sharers& team, u32 width, float eps) const {
    const float inverse = 1.0f / static_cast<float>(width);
    float total = 0.0f, all = squares;
    if constexpr (kNorm == kLayer) {
      total = team.sum(count * mean) * inverse;
      if (count > 0.0f) all = fmaf(count * (mean - total), mean - total, squares);
    }
    return {total, rsqrtf(fmaf(team.sum(all), inverse, eps))};
  }
};

// Normalises, scales, shifts and transforms kVectors vectors in place; those whose place in the
// row is not below `end` hold zeros and stay garbage.
template <class T, int kActivation, int kBytes, int kVectors>
__device__ __forceinline__ void transform(Vector<kBytes> (&raw)[kVectors], const Moments& moments,
                                          const Args& args, u32 first, u32 step, u32 end) {
  constexpr int kEach = kBytes / T::kBytes;
  const auto* scale = static_cast<const Vector<kBytes>*>(args.scale);
  const auto* shift = static_cast<const Vector<kBytes>*>(args.shift);
  float z[kVectors * kEach];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const u32 at = first + v * step;
    float x[kEach], by[kEach], plus[kEach];
    unpack<T>(raw[v], x);
    unpack<T>(at < end ? load_cached(scale + at) : zeros<kBytes>(), by);
    unpack<T>(at < end ? load_cached(shift + at) : zeros<kBytes>(), plus);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      z[v * kEach + i] = fmaf((x[i] - moments.mean) * moments.scale, by[i], plus[i]);
    }
  }
  activate<kActivation>(z, args.degree);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) raw[v] = packed<T, kBytes>(z + v * kEach);
}

}  // namespace warpwright::norm
