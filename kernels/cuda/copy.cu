// Aligned copies of operands that TMA can't take, and C = beta·C for products without terms.

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

namespace {

constexpr int kVector = 8;  // 16-bit elements of a word of 16 bytes
constexpr int kWarp = 32;
constexpr int kAtOnce = 4;  // words that a lane has on their way together

// A matrix and its copy. A warp copies one run of a line: `runs` of each, up to `run` words long.
struct Lines {
  const u16* from;
  u16* to;
  i64 lines, length;
  i64 pitch, to_pitch;  // elements; to_pitch a multiple of 8
  i64 runs, run;
};

// The 8 elements from kShift on of 16 that two words hold.
template <int kShift>
__device__ __forceinline__ uint4 shifted(const uint4& x, const uint4& y) {
  const u32 words[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
  u32 out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    constexpr int kFirst = kShift / 2;
    out[i] = kShift % 2 == 0 ? words[i + kFirst]
                             : __funnelshift_r(words[i + kFirst], words[i + kFirst + 1], 16);
  }
  return {out[0], out[1], out[2], out[3]};
}

// Operands are read once and leave; copies stay in the L2 for the product that follows, and for
// the next copy, which may write over them there.
struct Policies {
  u64 operand, copy;

  __device__ __forceinline__ Policies() {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(operand));
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(copy));
  }
  __device__ __forceinline__ uint4 load(const uint4* from) const {
    uint4 word;
    asm volatile("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                 : "l"(from), "l"(operand));
    return word;
  }
  __device__ __forceinline__ void store(uint4* to, const uint4& word) const {
    asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to),
                 "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w), "l"(copy)
                 : "memory");
  }
};

// Words of a run from aligned ones that start kShift elements before it.
template <int kShift>
__device__ __forceinline__ void copy_run(const uint4* from, uint4* to, int words, int lane) {
  const Policies policies;
  for (int first = lane; first < words; first += kAtOnce * kWarp) {
    uint4 x[kAtOnce], y[kAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kWarp;
      if (at < words) {
        x[i] = policies.load(from + at);
        if (kShift != 0) y[i] = policies.load(from + at + 1);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kWarp;
      if (at < words) policies.store(to + at, shifted<kShift>(x[i], y[i]));
    }
  }
}

// A warp's run. It takes whole aligned words, and with them what lies before or behind the run. What
// lies outside the line may not be ours to read: the words next to it go by elements.
__device__ __forceinline__ void copy(const Lines& job, i64 run, int lane) {
  // A division of 64 bits takes as long as many words.
  const bool is_short = (run | job.runs) >> 32 == 0;
  const i64 line = is_short ? static_cast<u32>(run) / static_cast<u32>(job.runs) : run / job.runs;
  const i64 first = (run - line * job.runs) * job.run * kVector;
  const u16* start = job.from + line * job.pitch;
  const u16* from = start + first;
  u16* to = job.to + line * job.to_pitch + first;
  const i64 left = job.length - first;  // elements of the line
  const int words = static_cast<int>(min(job.run, (left + kVector - 1) / kVector));
  const int shift = static_cast<int>(reinterpret_cast<u64>(from) & 15) / 2;
  const u16* end = start + job.length;
  const u16* aligned = from - shift;
  const int front = aligned < start;  // words that begin outside
  const i64 inside = (end - aligned) / kVector - (shift != 0);  // words that end inside
  const int last = max(front, static_cast<int>(min(i64{words}, inside)));
  // At most two words are beyond `last`: the end is no further from the line's own than that.
  const int element = lane < kVector ? lane : last * kVector + lane - kVector;
  const int until = lane < kVector ? front * kVector : words * kVector;
  if (element < min(i64{until}, left)) to[element] = from[element];
  const uint4* source = reinterpret_cast<const uint4*>(aligned) + front;
  uint4* target = reinterpret_cast<uint4*>(to) + front;
  switch (shift) {
    case 0: return copy_run<0>(source, target, last - front, lane);
    case 1: return copy_run<1>(source, target, last - front, lane);
    case 2: return copy_run<2>(source, target, last - front, lane);
    case 3: return copy_run<3>(source, target, last - front, lane);
    case 4: return copy_run<4>(source, target, last - front, lane);
    case 5: return copy_run<5>(source, target, last - front, lane);
    case 6: return copy_run<6>(source, target, last - front, lane);
    default: return copy_run<7>(source, target, last - front, lane);
  }
}

__device__ __forceinline__ float widened(u16 bits, bool fp16) {
  if (!fp16) return __uint_as_float(static_cast<u32>(bits) << 16);
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ __forceinline__ u16 rounded(float value, bool fp16) {
  u16 bits;
  if (fp16) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  } else {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  }
  return bits;
}

}  // namespace

// Copies `a`, `b` or both (lines = 0: not), a warp to each run, into lines that start on 16 bytes.
// What follows a line's last element, up to 16 bytes, may be anything.
extern "C" __global__ void __launch_bounds__(256) copy_operands(const Lines a, const Lines b) {
  // The next launch may begin, and waits for this one's end before it reads; the one before may
  // still read the copies that this one writes.
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const i64 run = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  const int lane = threadIdx.x % kWarp;
  const i64 runs_a = a.lines * a.runs;
  if (run < runs_a) {
    copy(a, run, lane);
  } else if (run < runs_a + b.lines * b.runs) {
    copy(b, run - runs_a, lane);
  }
}

// C = beta·C over m×n elements ldc apart, of type 0: bf16, 1: fp16, 2: fp32. Where beta is 0 C is
// written and not read.
extern "C" __global__ void __launch_bounds__(256) scale_matrix(void* c, i64 m, i64 n, i64 ldc,
                                                               float beta, int type) {
  const i64 total = m * n;
  const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += step) {
    const i64 at = i / n * ldc + i % n;
    if (type == 2) {
      float* element = static_cast<float*>(c) + at;
      *element = beta == 0.0f ? 0.0f : beta * *element;
    } else {
      u16* element = static_cast<u16*>(c) + at;
      *element = beta == 0.0f ? u16{0} : rounded(beta * widened(*element, type == 1), type == 1);
    }
  }
}
