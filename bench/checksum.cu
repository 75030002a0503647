// A hash of an array that a word's place enters too: splitmix64's output function over both,
// summed, so that the order in which blocks add doesn't matter.

namespace {

using u64 = unsigned long long;

__device__ __forceinline__ u64 mix(u64 z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
checksum(const unsigned short* words, long long count, u64* total) {
  u64 sum = 0;
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    sum += mix((static_cast<u64>(i) << 16 | words[i]) * 0x9E3779B97F4A7C15ull + 1);
  }
  for (int lanes = 16; lanes != 0; lanes /= 2) sum += __shfl_down_sync(0xffffffff, sum, lanes);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}
