// Aligned copies of operands that TMA can't take, and C = beta·C for products without terms.

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

namespace {

constexpr int kVector = 8;  // 16-bit elements of 16 bytes

// One 16-byte word of a line: elements [first, first + 8) of `length`, read from a source that
// starts on any element. Two aligned 16-byte loads and a shift, or single elements where the
// second would pass the line's end (what follows it may not be ours to read).
__device__ __forceinline__ uint4 load_vector(const u16* line, i64 first, i64 length) {
  const u16* from = line + first;
  const u64 address = reinterpret_cast<u64>(from);
  const u32 shift = static_cast<u32>(address & 15) / 2;
  if (shift == 0 && first + kVector <= length) return __ldg(reinterpret_cast<const uint4*>(from));
  // The aligned loads touch [from - shift, from - shift + 16 elements): all inside the line?
  if (first >= shift && first - shift + 2 * kVector <= length) {
    const uint4* aligned = reinterpret_cast<const uint4*>(address & ~u64{15});
    const uint4 x = __ldg(aligned), y = __ldg(aligned + 1);
    const u64 words[4] = {u64{x.x} | u64{x.y} << 32, u64{x.z} | u64{x.w} << 32,
                          u64{y.x} | u64{y.y} << 32, u64{y.z} | u64{y.w} << 32};
    const u32 bits = shift % 4 * 16;
    u64 low, high;
    if (shift < 4) {
      low = bits == 0 ? words[0] : words[0] >> bits | words[1] << (64 - bits);
      high = bits == 0 ? words[1] : words[1] >> bits | words[2] << (64 - bits);
    } else {
      low = bits == 0 ? words[1] : words[1] >> bits | words[2] << (64 - bits);
      high = bits == 0 ? words[2] : words[2] >> bits | words[3] << (64 - bits);
    }
    return {static_cast<u32>(low), static_cast<u32>(low >> 32), static_cast<u32>(high),
            static_cast<u32>(high >> 32)};
  }
  u32 packed[4] = {};
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    if (first + i < length) packed[i / 2] |= static_cast<u32>(from[i]) << (i % 2 * 16);
  }
  return {packed[0], packed[1], packed[2], packed[3]};
}

struct Lines {
  const u16* from;
  u16* to;
  i64 lines, length;
  i64 pitch, to_pitch;  // elements; to_pitch a multiple of 8
};

__device__ __forceinline__ void copy(const Lines& job, i64 begin, i64 step) {
  const i64 vectors = (job.length + kVector - 1) / kVector;  // of a line
  const i64 total = vectors * job.lines;
  i64 line = begin / vectors, vector = begin % vectors;
  const i64 line_step = step / vectors, vector_step = step % vectors;
  for (i64 at = begin; at < total; at += step) {
    const uint4 value = load_vector(job.from + line * job.pitch, vector * kVector, job.length);
    *reinterpret_cast<uint4*>(job.to + line * job.to_pitch + vector * kVector) = value;
    line += line_step;
    vector += vector_step;
    if (vector >= vectors) {
      vector -= vectors;
      ++line;
    }
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

// Copies `a`, `b` or both (lines = 0: not), 16 bytes a thread at a time, into lines that start on
// 16 bytes. The gap behind a line's last element is left or zeroed up to 16 bytes.
extern "C" __global__ void __launch_bounds__(256) copy_operands(const Lines a, const Lines b) {
  const i64 thread = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const i64 threads = static_cast<i64>(gridDim.x) * blockDim.x;
  if (a.lines != 0) copy(a, thread, threads);
  if (b.lines != 0) copy(b, thread, threads);
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
