// Words handed from one warp to another through one slot, round after round, each lane reading what
// another one wrote. All four kernels are right by the PTX memory model: what is written before an
// arrival, or by a lane that has met the arriving one at a warp's barrier before, is ordered before
// what follows the wait. A checker that reports one of them can't follow that kind of order.
#include "ptx.cuh"

// The full and the empty barrier, and behind them 32 words of each warp.
extern __shared__ __align__(16) unsigned char smem[];

namespace warpwright {

struct Args {
  u32* sums;
  u32 rounds;
};

enum How { kOneArrives, kEachArrives, kNamed };

__device__ __forceinline__ void put(u32 slot, u32 round) {
  ptx::store_shared(slot + threadIdx.x % 32 * 4, round + threadIdx.x % 32);
}
__device__ __forceinline__ u32 taken(u32 slot) {
  return ptx::load_shared_u32(slot + (31 - threadIdx.x % 32) * 4);
}

template <int kHow>
__device__ __forceinline__ void over(u32 barrier) {
  __syncwarp();
  if (kHow == kNamed) {
    asm volatile("bar.arrive %0, 64;" ::"r"(barrier) : "memory");
  } else if (kHow == kEachArrives || threadIdx.x % 32 == 0) {
    ptx::barrier_arrive(barrier);
  }
}
template <int kHow>
__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
  if (kHow == kNamed) {
    __syncwarp();
    ptx::named_barrier(barrier, 64);
  } else {
    ptx::barrier_wait(barrier, parity);
  }
}

template <int kHow>
__device__ __forceinline__ void handed_over(const Args& args) {
  const u32 slot = ptx::shared_address(smem) + 16;
  // A named barrier's id comes in a register, as those of rings do: few rounds are meant.
  const u32 full = kHow == kNamed ? 1 + (args.rounds >> 16) : ptx::shared_address(smem);
  const u32 empty = full + (kHow == kNamed ? 1 : 8);
  if (kHow != kNamed && threadIdx.x == 0) {
    ptx::barrier_init(full, kHow == kEachArrives ? 32 : 1);
    ptx::barrier_init(empty, kHow == kEachArrives ? 32 : 1);
    ptx::fence_barrier_init();
  }
  __syncthreads();
  u32 sum = 0;
  for (u32 round = 0; round < args.rounds; ++round) {
    if (threadIdx.x < 32) {
      if (kHow != kNamed || round != 0) wait<kHow>(empty, round & 1 ^ 1);
      put(slot, round);
      over<kHow>(full);
    } else {
      wait<kHow>(full, round & 1);
      sum += taken(slot);
      if (kHow != kNamed || round + 1 < args.rounds) over<kHow>(empty);
    }
  }
  args.sums[threadIdx.x] = sum;
}

}  // namespace warpwright

#define HANDED_OVER(name, how)                                                              \
  extern "C" __global__ void hand_over_##name(const __grid_constant__ warpwright::Args args) { \
    warpwright::handed_over<warpwright::how>(args);                                         \
  }
HANDED_OVER(one_arrives, kOneArrives)
HANDED_OVER(each_arrives, kEachArrives)
HANDED_OVER(named, kNamed)

// Within each of the two warps, by its own barrier alone.
extern "C" __global__ void hand_over_in_warp(const __grid_constant__ warpwright::Args args) {
  const unsigned slot = warpwright::ptx::shared_address(smem) + 16 + threadIdx.x / 32 * 128;
  unsigned sum = 0;
  for (unsigned round = 0; round < args.rounds; ++round) {
    warpwright::put(slot, round);
    __syncwarp();
    sum += warpwright::taken(slot);
    __syncwarp();
  }
  args.sums[threadIdx.x] = sum;
}
