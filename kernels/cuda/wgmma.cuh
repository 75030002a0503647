// wgmma: a warpgroup multiplies a 64×16 by a 16×N tile, both in shared memory and swizzled, and
// adds to N/2 float accumulators a thread. Either may be contiguous in k or in its other axis.
#pragma once

#include "ptx.cuh"

namespace warpwright {

struct Bf16 {
  // Two floats rounded to nearest even, `low` in the low half.
  static __device__ __forceinline__ u32 pack(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
  static __device__ __forceinline__ void unpack(u32 packed, float& low, float& high) {
    low = __uint_as_float(packed << 16);
    high = __uint_as_float(packed & 0xffff0000);
  }
};

struct Fp16 {
  static __device__ __forceinline__ u32 pack(float low, float high) {
    u32 packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
  static __device__ __forceinline__ void unpack(u32 packed, float& low, float& high) {
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}\n"
        : "=f"(low), "=f"(high)
        : "r"(packed));
  }
};

namespace wgmma {

__device__ __forceinline__ void fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int InFlight>
__device__ __forceinline__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(InFlight) : "memory");
}

// The wait names no accumulator, so the compiler could read one before it; this pins them.
template <int Count>
__device__ __forceinline__ void pin(float (&accumulators)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(accumulators[i])::"memory");
}

constexpr u32 kSwizzleRows = 8;  // the swizzle repeats after so many rows
constexpr u32 kDepth = 16;

// An operand's subtile as wgmma reads it (PTX ISA, "matrix descriptor"): rows of kWidth 16-bit
// elements, as wide as their swizzle, one after the other. Where the operand is contiguous in k
// a row is one of its rows (columns of B) and holds kWidth elements of k; where it is contiguous
// in its other axis a row is one k and holds kWidth elements of that axis, and kNext bytes
// on the next kWidth begin.
template <bool KMajor, u32 kWidth, u32 kNext>
struct Operand {
  static constexpr u32 kRowBytes = kWidth * 2;
  // Bytes by which a product of 16 further along k starts.
  static constexpr u32 kStepBytes = KMajor ? kDepth * 2 : kDepth * kRowBytes;
  static constexpr u64 kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;
  static_assert(kRowBytes == 128 || kRowBytes == 64 || kRowBytes == 32, "a swizzle's width");
  static_assert(!KMajor || kRowBytes == 128, "four steps of k in a row");

  // Leading offset (not used where k is contiguous and rows are swizzled), stride between
  // groups of eight rows, and swizzle; address and offsets in units of 16 bytes.
  static __device__ __forceinline__ u64 descriptor(u32 address) {
    constexpr u64 kLeading = KMajor ? 1 : kNext >> 4;
    constexpr u64 kLayout =
        kSwizzle << 62 | u64{(kSwizzleRows * kRowBytes) >> 4} << 32 | kLeading << 16;
    return kLayout | ((address & 0x3ffff) >> 4);
  }
};

__device__ __forceinline__ constexpr u64 descriptor_step(u32 bytes) { return bytes >> 4; }

// Mma<T, N>::issue<AT, BT>(d, a, b, add): d = a·b + (add ? d : 0), asynchronously; AT and BT
// are 1 where the operand is not contiguous in k.
template <typename Element, int N>
struct Mma;

// Register names and operands of an accumulator, eight at a time (PTX numbers operands in order).
#define WW_REGS_4 "%0,%1,%2,%3"
#define WW_REGS_8 WW_REGS_4 ",%4,%5,%6,%7"
#define WW_REGS_12 WW_REGS_8 ",%8,%9,%10,%11"
#define WW_REGS_16 WW_REGS_12 ",%12,%13,%14,%15"
#define WW_REGS_20 WW_REGS_16 ",%16,%17,%18,%19"
#define WW_REGS_24 WW_REGS_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define WW_REGS_28 WW_REGS_24 ",%24,%25,%26,%27"
#define WW_REGS_32 WW_REGS_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define WW_REGS_36 WW_REGS_32 ",%32,%33,%34,%35"
#define WW_REGS_40 WW_REGS_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define WW_REGS_44 WW_REGS_40 ",%40,%41,%42,%43"
#define WW_REGS_48 WW_REGS_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define WW_REGS_52 WW_REGS_48 ",%48,%49,%50,%51"
#define WW_REGS_56 WW_REGS_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define WW_REGS_60 WW_REGS_56 ",%56,%57,%58,%59"
#define WW_REGS_64 WW_REGS_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define WW_REGS_72 WW_REGS_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define WW_REGS_80 WW_REGS_72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define WW_REGS_88 WW_REGS_80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define WW_REGS_96 WW_REGS_88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define WW_REGS_104 WW_REGS_96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define WW_REGS_112 WW_REGS_104 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define WW_REGS_120 WW_REGS_112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define WW_REGS_128 WW_REGS_120 ",%120,%121,%122,%123,%124,%125,%126,%127"

#define WW_ACC(i) "+f"(d[i])
#define WW_ACC_4(i) WW_ACC(i), WW_ACC(i + 1), WW_ACC(i + 2), WW_ACC(i + 3)
#define WW_ACC_8(i) WW_ACC_4(i), WW_ACC_4(i + 4)
#define WW_OUT_4 WW_ACC_4(0)
#define WW_OUT_8 WW_OUT_4, WW_ACC_4(4)
#define WW_OUT_12 WW_OUT_8, WW_ACC_4(8)
#define WW_OUT_16 WW_OUT_12, WW_ACC_4(12)
#define WW_OUT_20 WW_OUT_16, WW_ACC_4(16)
#define WW_OUT_24 WW_OUT_16, WW_ACC_8(16)
#define WW_OUT_28 WW_OUT_24, WW_ACC_4(24)
#define WW_OUT_32 WW_OUT_24, WW_ACC_8(24)
#define WW_OUT_36 WW_OUT_32, WW_ACC_4(32)
#define WW_OUT_40 WW_OUT_32, WW_ACC_8(32)
#define WW_OUT_44 WW_OUT_40, WW_ACC_4(40)
#define WW_OUT_48 WW_OUT_40, WW_ACC_8(40)
#define WW_OUT_52 WW_OUT_48, WW_ACC_4(48)
#define WW_OUT_56 WW_OUT_48, WW_ACC_8(48)
#define WW_OUT_60 WW_OUT_56, WW_ACC_4(56)
#define WW_OUT_64 WW_OUT_56, WW_ACC_8(56)
#define WW_OUT_72 WW_OUT_64, WW_ACC_8(64)
#define WW_OUT_80 WW_OUT_72, WW_ACC_8(72)
#define WW_OUT_88 WW_OUT_80, WW_ACC_8(80)
#define WW_OUT_96 WW_OUT_88, WW_ACC_8(88)
#define WW_OUT_104 WW_OUT_96, WW_ACC_8(96)
#define WW_OUT_112 WW_OUT_104, WW_ACC_8(104)
#define WW_OUT_120 WW_OUT_112, WW_ACC_8(112)
#define WW_OUT_128 WW_OUT_120, WW_ACC_8(120)

#define WW_MMA_OF(ELEMENT, TYPE, N, COUNT, A, B, ADD, AT, BT)                                  \
  template <>                                                                                  \
  struct Mma<ELEMENT, N> {                                                                     \
    template <int kTransposeA, int kTransposeB>                                                \
    static __device__ __forceinline__ void issue(float (&d)[COUNT], u64 a, u64 b, u32 add) {   \
      asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %" #ADD ", 0;\n"                          \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE             \
                   " {" WW_REGS_##COUNT "}, %" #A ", %" #B ", p, 1, 1, %" #AT ", %" #BT ";\n}\n" \
                   : WW_OUT_##COUNT                                                            \
                   : "l"(a), "l"(b), "r"(add), "n"(kTransposeA), "n"(kTransposeB));            \
    }                                                                                          \
  };

// N, N/2, and the operand numbers of what follows the accumulators.
#define WW_MMA(N, COUNT, A, B, ADD, AT, BT)                    \
  WW_MMA_OF(Bf16, "bf16", N, COUNT, A, B, ADD, AT, BT)         \
  WW_MMA_OF(Fp16, "f16", N, COUNT, A, B, ADD, AT, BT)

WW_MMA(8, 4, 4, 5, 6, 7, 8)
WW_MMA(16, 8, 8, 9, 10, 11, 12)
WW_MMA(24, 12, 12, 13, 14, 15, 16)
WW_MMA(32, 16, 16, 17, 18, 19, 20)
WW_MMA(40, 20, 20, 21, 22, 23, 24)
WW_MMA(48, 24, 24, 25, 26, 27, 28)
WW_MMA(56, 28, 28, 29, 30, 31, 32)
WW_MMA(64, 32, 32, 33, 34, 35, 36)
WW_MMA(72, 36, 36, 37, 38, 39, 40)
WW_MMA(80, 40, 40, 41, 42, 43, 44)
WW_MMA(88, 44, 44, 45, 46, 47, 48)
WW_MMA(96, 48, 48, 49, 50, 51, 52)
WW_MMA(104, 52, 52, 53, 54, 55, 56)
WW_MMA(112, 56, 56, 57, 58, 59, 60)
WW_MMA(120, 60, 60, 61, 62, 63, 64)
WW_MMA(128, 64, 64, 65, 66, 67, 68)
WW_MMA(144, 72, 72, 73, 74, 75, 76)
WW_MMA(160, 80, 80, 81, 82, 83, 84)
WW_MMA(176, 88, 88, 89, 90, 91, 92)
WW_MMA(192, 96, 96, 97, 98, 99, 100)
WW_MMA(208, 104, 104, 105, 106, 107, 108)
WW_MMA(224, 112, 112, 113, 114, 115, 116)
WW_MMA(240, 120, 120, 121, 122, 123, 124)
WW_MMA(256, 128, 128, 129, 130, 131, 132)

}  // namespace wgmma
}  // namespace warpwright
