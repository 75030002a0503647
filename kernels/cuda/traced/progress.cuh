// When each warp got where, by its SM's own clock. A traced build has this in the place of the
// progress.cuh that ships; kernels/trace_records.py reads what it keeps.
#pragma once

#include "ptx.cuh"

namespace warpwright {

// As in the progress.cuh that ships.
enum Place : u32 {
  kNotStarted = 0,
  kSetUp = 1,
  kWaitsEmpty = 2,
  kLoads = 3,
  kWaitsFull = 4,
  kMultiplies = 5,
  kReduces = 6,
  kStores = 7,
  kDone = 8,
};

// A warp's records, 8 bytes each: a head, then its steps, as many as there is room for.
constexpr u32 kRoom = WARPWRIGHT_TRACE_RECORDS;  // a power of two
enum Head : u32 { kStartClock = 0, kStartTime = 1, kEnd = 2, kWhere = 3, kSteps = 4 };
static_assert(kRoom > kSteps && (kRoom & (kRoom - 1)) == 0, "a full room ends in zeros");

// One lane of the first warp of each MATH warpgroup, and of each DMA warp, keeps
//   kEnd         the clock's low half at the end, and where the next step would have gone
//   a step       the clock's low half at a place, and the cycles since the place before << 4 | place
// and that of the block's first warp, when it comes to its first unit of work,
//   kStartClock  the clock, 64 bits, and
//   kStartTime   the device's timer in ns, 64 bits
//   kWhere       its SM
// The timer is slow to read: there, the first loads are on their way, and the next launch has been
// let begin.
// Where a wait begins is no step of its own: one store an iteration. What there is no room for is
// not kept. A store is predicated, so that the warp stays whole, and nobody waits for it; DMA warps
// have few registers, which is why `next_` alone tells stripe, step and whether there is room.
class Progress {
 public:
  __device__ __forceinline__ Progress(uint4* records, int warp, bool writes)
      : records_(reinterpret_cast<uint2*>(records)) {
    const u32 warps = blockDim.x / 32;
    const u32 math_warps = (warps - 1) / 4 * 4;  // DMA warps are 1, 2 or 4
    const bool keeps = warp % 4 == 0 || static_cast<u32>(warp) >= math_warps;
    const u32 stripe = blockIdx.x * warps + warp;
    next_ = writes && keeps && records != nullptr ? stripe * kRoom + kSteps : 0;
    is_first_ = warp == 0;  // known to be false where a DMA warp goes, which has no register for it
  }

  __device__ __forceinline__ void unit(u32) {
    if (is_first_ && next_ % kRoom == kSteps) start();
  }
  __device__ __forceinline__ void begin(Place, u32) { before_ = clock(); }
  __device__ __forceinline__ void at(Place place, u32 = 0) {
    if (place == kDone) {
      store(head(kEnd), next_ != 0, clock(), next_);
    } else if (place != kSetUp) {
      const u32 now = clock();
      const bool has_room = next_ % kRoom != 0;
      store(next_, has_room, now, (now - before_) << 4 | place);
      before_ = now;
      next_ += has_room;
    }
  }

 private:
  __device__ __forceinline__ u32 head(Head record) const {
    return (next_ - 1) / kRoom * kRoom + record;
  }
  __device__ __forceinline__ void start() const {
    u32 low, high, sm;
    asm volatile("{\n.reg .b64 t;\nmov.u64 t, %%clock64;\nmov.b64 {%0, %1}, t;\n}\n"
                 : "=r"(low), "=r"(high)::"memory");
    store(head(kStartClock), next_ != 0, low, high);
    asm volatile("{\n.reg .b64 t;\nmov.u64 t, %%globaltimer;\nmov.b64 {%0, %1}, t;\n}\n"
                 : "=r"(low), "=r"(high)::"memory");
    store(head(kStartTime), next_ != 0, low, high);
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    store(head(kWhere), next_ != 0, sm, 0);
  }
  static __device__ __forceinline__ u32 clock() {
    u32 now;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
    return now;
  }
  __device__ __forceinline__ void store(u32 record, bool keeps, u32 x, u32 y) const {
    asm volatile(
        "{\n.reg .pred p;\n"
        "setp.ne.u32 p, %1, 0;\n"
        "@p st.global.cs.v2.u32 [%0], {%2, %3};\n}\n" ::"l"(records_ + record),
        "r"(static_cast<u32>(keeps)), "r"(x), "r"(y)
        : "memory");
  }

  uint2* records_;
  u32 next_;  // where the next step goes; 0 where nothing is kept
  u32 before_ = 0;
  bool is_first_;
};

}  // namespace warpwright
