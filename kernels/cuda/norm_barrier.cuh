// Barriers and copies of the norm_activation rings, from sm_80 on: mbarriers whose waits poll where
// there is no try_wait, named barriers with arrive and sync apart, and three ways to fill a slot.
#pragma once

#include "norm_types.cuh"

namespace warpwright::norm {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kHopper = true;
#else
constexpr bool kHopper = false;
#endif

__device__ __forceinline__ void barriers_initialised() {
  if constexpr (kHopper) ptx::fence_barrier_init();
}

__device__ __forceinline__ void arrive(u32 barrier) {
  [[maybe_unused]] u64 state;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(barrier) : "memory");
}

// Returns once the phase of the given parity is complete; a fresh barrier has completed parity 1.
__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
  if constexpr (kHopper) {
    ptx::barrier_wait(barrier, parity);
  } else {
    u32 complete;
    do {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}\n"
          : "=r"(complete)
          : "r"(barrier), "r"(parity)
          : "memory");
    } while (!complete);
  }
}

// Named barriers count warps whole: their lanes come together first.
__device__ __forceinline__ void named_sync(u32 id, u32 threads) {
  __syncwarp();
  ptx::named_barrier(id, threads);
}

__device__ __forceinline__ void named_arrive(u32 id, u32 threads) {
  __syncwarp();
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- bulk copies, sm_90 on: one thread, sizes and addresses multiples of 16

__device__ __forceinline__ void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// Returns once the store has read its shared memory.
__device__ __forceinline__ void bulk_store(void* to, u32 from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
  ptx::tma_store_commit();
  ptx::tma_store_wait_read();
}

// ---- asynchronous copies of 16 bytes, sm_80 on

__device__ __forceinline__ void async_load(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// This thread's arrival, once all of its asynchronous copies so far have landed. The barrier's
// count includes it.
__device__ __forceinline__ void arrive_when_loaded(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace warpwright::norm
