// What the device can do at most: reading and copying memory, and multiplying what already lies in
// shared memory. Built with the kernel's own headers.
#include "wgmma.cuh"

using namespace warpwright;

// Reads a buffer from end to end, four 16-byte loads of a thread under way at a time.
extern "C" __global__ void __launch_bounds__(512)
    read_only(const uint4* buffer, i64 count, u32* never_written) {
  u32 mixed = 0;
  const i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
  i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    uint4 value[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) value[j] = __ldcs(buffer + i + j * stride);
#pragma unroll
    for (int j = 0; j < 4; ++j) mixed |= value[j].x | value[j].y | value[j].z | value[j].w;
  }
  for (; i < count; i += stride) mixed |= buffer[i].x | buffer[i].y | buffer[i].z | buffer[i].w;
  if (mixed == 1) *never_written = mixed;  // random bits together have more: keeps the loads alive
}

// Copies a buffer, four 16-byte loads of a thread under way at a time.
extern "C" __global__ void __launch_bounds__(512)
    copy_all(const uint4* from, uint4* to, i64 count) {
  const i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
  i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    uint4 value[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) value[j] = __ldcs(from + i + j * stride);
#pragma unroll
    for (int j = 0; j < 4; ++j) __stcs(to + i + j * stride, value[j]);
  }
  for (; i < count; i += stride) to[i] = from[i];
}

constexpr u32 kTileM = 64, kTileN = 256, kTileK = 64;
constexpr u32 kWarpgroups = 2, kSlots = 4;
constexpr u32 kBytesA = kTileM * kTileK * 2, kBytesB = kTileN * kTileK * 2;
constexpr u32 kSlotBytes = kWarpgroups * kBytesA + kBytesB;
constexpr u32 kSumIterations = 64;  // after so many a sum begins anew, as a product of k = 4096 has

// Two warpgroups of a CTA on every SM multiply 64×64 by 64×256, slot by slot and again: a GEMM's
// main loop without its loads. `values` fill the slots, random as a product's operands.
extern "C" __global__ void __launch_bounds__(kWarpgroups * 128, 1)
    multiply_only(const uint4* values, int iterations, float* sums) {
  extern __shared__ unsigned char raw[];
  const u32 base = (ptx::shared_address(raw) + 1023) & ~1023u;
  auto* slots = reinterpret_cast<uint4*>(raw + (base - ptx::shared_address(raw)));
  for (u32 i = threadIdx.x; i < kSlots * kSlotBytes / 16; i += blockDim.x) slots[i] = values[i];
  ptx::fence_async_proxy();
  __syncthreads();

  using Operand = wgmma::Operand<true, kTileK, 0>;
  const u32 warpgroup = threadIdx.x / 128;
  float acc[kTileN / 2];
#pragma unroll
  for (u32 i = 0; i < kTileN / 2; ++i) acc[i] = 0;
#pragma unroll 1
  for (int i = 0; i < iterations; ++i) {
    u32 add = i % kSumIterations != 0;
    asm volatile("" : "+r"(add));  // or the compiler makes one loop for each value
    const u32 slot = base + i % kSlots * kSlotBytes;
    const u64 a = Operand::descriptor(slot + warpgroup * kBytesA);
    const u64 b = Operand::descriptor(slot + kWarpgroups * kBytesA);
    wgmma::fence();
#pragma unroll
    for (u32 step = 0; step < kTileK / wgmma::kDepth; ++step) {
      const u64 further = wgmma::descriptor_step(step * Operand::kStepBytes);
      wgmma::Mma<Bf16, kTileN>::issue<0, 0>(acc, a + further, b + further,
                                            step == 0 ? add : 1);
    }
    wgmma::commit();
    wgmma::wait<1>();
  }
  wgmma::wait<0>();
  wgmma::pin(acc);
  float sum = 0;
#pragma unroll
  for (u32 i = 0; i < kTileN / 2; ++i) sum += acc[i];
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
