// Elements of the norm_activation family: fp32, fp16 and bf16 in vectors of 2 to 16 bytes, and the
// arguments and the schedule that its kernels share.
#pragma once

#include "ptx.cuh"

namespace warpwright::norm {

constexpr int kWarp = 32;

enum Norm : int { kLayer = 0, kRms = 1 };

// What every launch passes. A unit is what a team or a group takes at a time: some whole rows, or
// one row that comes in several chunks.
struct Args {
  const void* x;
  const void* scale;
  const void* shift;
  void* y;
  i64 rows;
  i64 units;
  u32 units_per_block;  // 0: persistent, units dealt out across the grid
  u32 rows_per_unit;
  u32 width;
  u32 degree;
  float eps;
  u32 depth;            // slots of each group's ring, as the rest for kernels with a ring alone
  u32 slot_bytes;
  u32 chunk_bytes;      // of a row that comes in several chunks
  u32 chunks_per_unit;  // 1: whole rows
};

// Units of this block: `first`, `first` + `step`, …, `count` of them.
struct Schedule {
  i64 first, step;
  u32 count;

  __device__ __forceinline__ explicit Schedule(const Args& args) {
    const i64 block = blockIdx.x, blocks = gridDim.x;
    if (args.units_per_block == 0) {
      first = block;
      step = blocks;
      count = block < args.units ? static_cast<u32>((args.units - block + blocks - 1) / blocks) : 0;
    } else {
      first = block * args.units_per_block;
      step = 1;
      const i64 left = args.units - first;
      count = left <= 0 ? 0 : static_cast<u32>(left < args.units_per_block ? left : args.units_per_block);
    }
  }
  __device__ __forceinline__ i64 unit(u32 index) const { return first + index * step; }
};

template <int kBytes>
struct alignas(kBytes) Vector {
  u32 word[kBytes / 4];
};
template <>
struct alignas(2) Vector<2> {
  unsigned short half;
};

struct Fp32 {
  static constexpr int kBytes = 4;
  static __device__ __forceinline__ float low(u32 word) { return __uint_as_float(word); }
};

struct Bf16 {
  static constexpr int kBytes = 2;
  static __device__ __forceinline__ float low(u32 word) { return __uint_as_float(word << 16); }
  static __device__ __forceinline__ float high(u32 word) {
    return __uint_as_float(word & 0xffff0000u);
  }
  static __device__ __forceinline__ u32 pair(float low, float high) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
};

struct Fp16 {
  static constexpr int kBytes = 2;
  static __device__ __forceinline__ float widened(unsigned short half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
  }
  static __device__ __forceinline__ float low(u32 word) {
    return widened(static_cast<unsigned short>(word));
  }
  static __device__ __forceinline__ float high(u32 word) {
    return widened(static_cast<unsigned short>(word >> 16));
  }
  static __device__ __forceinline__ u32 pair(float low, float high) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
};

template <class T, int kBytes>
__device__ __forceinline__ void unpack(const Vector<kBytes>& vector, float* x) {
  if constexpr (kBytes == 2) {
    x[0] = T::low(vector.half);
  } else if constexpr (T::kBytes == 4) {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) x[i] = T::low(vector.word[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) {
      x[2 * i] = T::low(vector.word[i]);
      x[2 * i + 1] = T::high(vector.word[i]);
    }
  }
}

template <class T, int kBytes>
__device__ __forceinline__ Vector<kBytes> packed(const float* x) {
  Vector<kBytes> vector;
  if constexpr (kBytes == 2) {
    vector.half = static_cast<unsigned short>(T::pair(x[0], 0.0f));
  } else if constexpr (T::kBytes == 4) {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) vector.word[i] = __float_as_uint(x[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) vector.word[i] = T::pair(x[2 * i], x[2 * i + 1]);
  }
  return vector;
}

template <int kBytes>
__device__ __forceinline__ Vector<kBytes> zeros() {
  Vector<kBytes> vector;
  if constexpr (kBytes == 2) {
    vector.half = 0;
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) vector.word[i] = 0;
  }
  return vector;
}

// Global loads. Memory that is read once is kept out of the L1, which scale and shift want; these
// are not loaded as read-only, so that the compiler can't bring them forward past a store, into
// registers that it lacks.
#define WARPWRIGHT_NORM_LOAD(name, policy, ...)                                                 \
  template <int kBytes>                                                                         \
  __device__ __forceinline__ Vector<kBytes> name(const Vector<kBytes>* from) {                  \
    Vector<kBytes> v;                                                                           \
    if constexpr (kBytes == 16) {                                                               \
      asm volatile("ld.global" policy ".v4.u32 {%0, %1, %2, %3}, [%4];"                         \
                   : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])         \
                   : "l"(from)__VA_ARGS__);                                                     \
    } else if constexpr (kBytes == 8) {                                                         \
      asm volatile("ld.global" policy ".v2.u32 {%0, %1}, [%2];"                                 \
                   : "=r"(v.word[0]), "=r"(v.word[1])                                           \
                   : "l"(from)__VA_ARGS__);                                                     \
    } else if constexpr (kBytes == 4) {                                                         \
      asm volatile("ld.global" policy ".u32 %0, [%1];" : "=r"(v.word[0]) : "l"(from)__VA_ARGS__);\
    } else {                                                                                    \
      asm volatile("ld.global" policy ".u16 %0, [%1];" : "=h"(v.half) : "l"(from)__VA_ARGS__);  \
    }                                                                                           \
    return v;                                                                                   \
  }
WARPWRIGHT_NORM_LOAD(load_once, ".nc.L1::no_allocate")
WARPWRIGHT_NORM_LOAD(load_cached, "", : "memory")
#undef WARPWRIGHT_NORM_LOAD

// Zero, which the compiler can't know: dynamic shared memory is below 16 MiB.
__device__ __forceinline__ u32 hidden_zero() { return ptx::dynamic_smem_bytes() >> 24; }

// Keeps what was unpacked from the words from being kept beside them: unpacking again is cheaper
// than the registers.
template <int kBytes>
__device__ __forceinline__ void forget(Vector<kBytes>& v, u32 zero) {
  if constexpr (kBytes == 2) {
    v.half += static_cast<unsigned short>(zero);
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) v.word[i] += zero;
  }
}

__device__ __forceinline__ Vector<16> load_shared(u32 address) {
  Vector<16> v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "r"(address)
               : "memory");
  return v;
}

__device__ __forceinline__ void store_shared(u32 address, const Vector<16>& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.word[0]),
               "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}

}  // namespace warpwright::norm
