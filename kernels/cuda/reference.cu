// A slow, plain product to hold the fast one against: no library, no tensor core.
//
// C[rows][n] = A[rows][k] * B[n][k]^T over bf16 or fp16 bits, A and B of any strides, C packed.
// Sum: fp64. Magnitude: |a|*|b| in fp32, whose error is far below the slack it feeds. Exact:
// fp32, for sums of integers that stay below 2^24.

namespace {

constexpr int kTile = 128;  // rows and columns of C per block
constexpr int kDepth = 16;  // k per step
constexpr int kMicro = 8;   // rows and columns of C per thread
constexpr int kLanes = kTile / kMicro;

using i64 = long long;

// Elements from one row to the next (columns of B), and from one k to the next.
struct Strides {
    i64 row, k;
};

__device__ __forceinline__ float value_of(unsigned short bits, bool fp16) {
    if (!fp16) return __uint_as_float(static_cast<unsigned>(bits) << 16);
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

template <typename Real, bool kMagnitude>
__device__ __forceinline__ void product(const unsigned short* __restrict__ a,
                                        const unsigned short* __restrict__ b,
                                        Real* __restrict__ c, i64 rows, i64 n, i64 k,
                                        Strides stride_a, Strides stride_b, bool fp16) {
    __shared__ Real tile_a[kDepth][kTile];
    __shared__ Real tile_b[kDepth][kTile];
    const i64 tiles_n = (n - 1) / kTile + 1;  // one axis of blocks: the others end at 65,535
    const i64 row0 = blockIdx.x / tiles_n * kTile;
    const i64 col0 = blockIdx.x % tiles_n * kTile;
    const int x = threadIdx.x % kLanes, y = threadIdx.x / kLanes;
    const int load_row = threadIdx.x % kTile, load_k = threadIdx.x / kTile * (kDepth / 2);
    const bool in_rows = row0 + load_row < rows, in_n = col0 + load_row < n;
    const unsigned short* from_a = a + (row0 + load_row) * stride_a.row;
    const unsigned short* from_b = b + (col0 + load_row) * stride_b.row;
    Real sum[kMicro][kMicro] = {};

    for (i64 k0 = 0; k0 < k; k0 += kDepth) {
#pragma unroll
        for (int i = 0; i < kDepth / 2; ++i) {
            const i64 at = k0 + load_k + i;
            const float va = in_rows && at < k ? value_of(from_a[at * stride_a.k], fp16) : 0.0f;
            const float vb = in_n && at < k ? value_of(from_b[at * stride_b.k], fp16) : 0.0f;
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
            const i64 row = row0 + y + i * kLanes, col = col0 + x + j * kLanes;
            if (row < rows && col < n) c[row * n + col] = sum[i][j];
        }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256, 1)
reference_sum(const unsigned short* a, const unsigned short* b, double* c, i64 rows, i64 n,
              i64 k, i64 a_row, i64 a_k, i64 b_row, i64 b_k, int fp16) {
    product<double, false>(a, b, c, rows, n, k, {a_row, a_k}, {b_row, b_k}, fp16 != 0);
}

extern "C" __global__ void __launch_bounds__(256, 1)
reference_magnitude(const unsigned short* a, const unsigned short* b, float* c, i64 rows, i64 n,
                    i64 k, i64 a_row, i64 a_k, i64 b_row, i64 b_k, int fp16) {
    product<float, true>(a, b, c, rows, n, k, {a_row, a_k}, {b_row, b_k}, fp16 != 0);
}

extern "C" __global__ void __launch_bounds__(256, 1)
reference_exact(const unsigned short* a, const unsigned short* b, float* c, i64 rows, i64 n,
                i64 k, i64 a_row, i64 a_k, i64 b_row, i64 b_k, int fp16) {
    product<float, false>(a, b, c, rows, n, k, {a_row, a_k}, {b_row, b_k}, fp16 != 0);
}
