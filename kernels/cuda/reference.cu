// A slow, plain product to hold the fast one against: no library, no tensor core.
//
// C[rows][n] = A[rows][k] * B[n][k]^T over bf16 or fp16 bits. Sum: fp64. Magnitude: |a|*|b|
// in fp32, whose error is far below the slack it feeds. Exact: fp32, for sums of integers
// that stay below 2^24.

namespace {

constexpr int kTile = 128;  // rows and columns of C per block
constexpr int kDepth = 16;  // k per step
constexpr int kMicro = 8;   // rows and columns of C per thread
constexpr int kLanes = kTile / kMicro;

__device__ __forceinline__ float value_of(unsigned short bits, bool fp16) {
    if (!fp16) return __uint_as_float(static_cast<unsigned>(bits) << 16);
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

template <typename Real, bool kMagnitude>
__device__ __forceinline__ void product(const unsigned short* __restrict__ a,
                                        const unsigned short* __restrict__ b,
                                        Real* __restrict__ c, long long rows, long long n,
                                        long long k, bool fp16) {
    __shared__ Real tile_a[kDepth][kTile];
    __shared__ Real tile_b[kDepth][kTile];
    const long long row0 = static_cast<long long>(blockIdx.y) * kTile;
    const long long col0 = static_cast<long long>(blockIdx.x) * kTile;
    const int x = threadIdx.x % kLanes, y = threadIdx.x / kLanes;
    const int load_row = threadIdx.x % kTile, load_k = threadIdx.x / kTile * (kDepth / 2);
    Real sum[kMicro][kMicro] = {};

    for (long long k0 = 0; k0 < k; k0 += kDepth) {
#pragma unroll
        for (int i = 0; i < kDepth / 2; ++i) {
            const long long at = k0 + load_k + i;
            const bool in_k = at < k;
            float va = in_k && row0 + load_row < rows
                           ? value_of(a[(row0 + load_row) * k + at], fp16) : 0.0f;
            float vb = in_k && col0 + load_row < n
                           ? value_of(b[(col0 + load_row) * k + at], fp16) : 0.0f;
            tile_a[load_k + i][load_row] = kMagnitude ? fabsf(va) : va;
            tile_b[load_k + i][load_row] = kMagnitude ? fabsf(vb) : vb;
        }
        __syncthreads();
#pragma unroll 4
        for (int d = 0; d < kDepth; ++d) {
            Real left[kMicro], right[kMicro];
#pragma unroll
            for (int i = 0; i < kMicro; ++i) {
                left[i] = tile_a[d][y + i * kLanes];
                right[i] = tile_b[d][x + i * kLanes];
            }
#pragma unroll
            for (int i = 0; i < kMicro; ++i)
#pragma unroll
                for (int j = 0; j < kMicro; ++j) sum[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kMicro; ++i)
#pragma unroll
        for (int j = 0; j < kMicro; ++j) {
            const long long row = row0 + y + i * kLanes, col = col0 + x + j * kLanes;
            if (row < rows && col < n) c[row * n + col] = sum[i][j];
        }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256, 1)
reference_sum(const unsigned short* a, const unsigned short* b, double* c, long long rows,
              long long n, long long k, int fp16) {
    product<double, false>(a, b, c, rows, n, k, fp16 != 0);
}

extern "C" __global__ void __launch_bounds__(256, 1)
reference_magnitude(const unsigned short* a, const unsigned short* b, float* c, long long rows,
                    long long n, long long k, int fp16) {
    product<float, true>(a, b, c, rows, n, k, fp16 != 0);
}

extern "C" __global__ void __launch_bounds__(256, 1)
reference_exact(const unsigned short* a, const unsigned short* b, float* c, long long rows,
                long long n, long long k, int fp16) {
    product<float, false>(a, b, c, rows, n, k, fp16 != 0);
}
