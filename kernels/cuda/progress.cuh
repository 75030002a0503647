// Where each warp is, for a launch that does not end. Only the debug build keeps it.
#pragma once

#include "ptx.cuh"

namespace warpwright {

// What a warp waits for or does; kernels/progress.py names them.
enum Place : u32 {
  kNotStarted = 0,
  kSetUp = 1,       // barriers being initialised
  kWaitsEmpty = 2,  // DMA: a slot's empty barrier
  kLoads = 3,       // DMA: its loads are being issued
  kWaitsFull = 4,   // MATH: a slot's full barrier
  kMultiplies = 5,  // MATH: its products run, or a slot is being given back
  kReduces = 6,     // MATH: the barrier of all MATH warps at the split-K reduction
  kStores = 7,      // MATH: its warpgroup's barrier in the epilogue
  kDone = 8,
};

#ifdef WARPWRIGHT_PROGRESS

// One thread of a warp writes its warp's record: {place, slot, k-iterations begun over all
// units, unit}. Host memory: a store is seen there although the kernel never ends.
class Progress {
 public:
  __device__ __forceinline__ Progress(uint4* records, int warp, bool writes)
      : record_(writes ? records + blockIdx.x * (blockDim.x / 32) + warp : nullptr) {}

  __device__ __forceinline__ void unit(u32 index) { unit_ = index; }
  __device__ __forceinline__ void begin(Place place, u32 slot) {
    ++iterations_;
    at(place, slot);
  }
  __device__ __forceinline__ void at(Place place, u32 slot = 0) {
    if (record_ == nullptr) return;
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(record_), "r"(place),
                 "r"(slot), "r"(iterations_), "r"(unit_)
                 : "memory");
  }

 private:
  uint4* record_;
  u32 iterations_ = 0;
  u32 unit_ = 0;
};

#else

class Progress {
 public:
  __device__ __forceinline__ Progress(uint4*, int, bool) {}
  __device__ __forceinline__ void unit(u32) {}
  __device__ __forceinline__ void begin(Place, u32) {}
  __device__ __forceinline__ void at(Place, u32 = 0) {}
};

#endif

}  // namespace warpwright
