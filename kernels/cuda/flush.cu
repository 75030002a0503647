// Reads a buffer from end to end, so that it replaces what the L2 held by clean lines: a
// flush by writing would leave dirty lines, whose write-back would fall into the timed region.
extern "C" __global__ void flush_by_reading(const uint4* buffer, long long count,
                                            unsigned* never_written) {
    unsigned mixed = 0;
    const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += stride) {
        const uint4 value = buffer[i];
        mixed |= value.x | value.y | value.z | value.w;
    }
    if (mixed) *never_written = mixed;  // the buffer is zero: keeps the loads alive
}
