// A CUDA driver that keeps memory on the host and, of a launch, prints what it was given: a line
// for each, its tensor maps as numbers and its blocks as hexadecimal bytes. With MULTIPLIES it
// also does what the launch is for: C = A*B of signs in bf16, m, n and k all different.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
struct Map {  // what a CUtensorMap has room for
  unsigned long long base, dims[2], stride;
  unsigned type, box[2], steps[2], interleave, swizzle, promotion, fill;
};
static_assert(sizeof(Map) <= sizeof(CUtensorMap), "fits");

const char* entry;

void print_block(const void* block, int bytes) {
  std::printf("\"");
  for (int i = 0; i < bytes; ++i) std::printf("%02x", static_cast<const unsigned char*>(block)[i]);
  std::printf("\"");
}
void print_map(const void* given) {
  Map map;
  std::memcpy(&map, given, sizeof map);
  std::printf("[%u, 2, %llu, [%llu, %llu], [%llu], [%u, %u], [%u, %u], %u, %u, %u, %u], ", map.type,
              map.base, map.dims[0], map.dims[1], map.stride, map.box[0], map.box[1], map.steps[0],
              map.steps[1], map.interleave, map.swizzle, map.promotion, map.fill);
}
#ifdef MULTIPLIES
int sign_at(const Map& map, bool by_k, int line, int at_k) {
  const long long row = by_k ? line : at_k, column = by_k ? at_k : line;
  unsigned short word;
  std::memcpy(&word, reinterpret_cast<char*>(map.base) + row * map.stride + 2 * column, 2);
  return word == 0 ? 0 : word & 0x8000 ? -1 : 1;
}
void multiply(void** parameters) {
  Map a, b;
  struct {
    unsigned short* c;
    void* others[3];
    long long ldc;
    int m, n, k;
  } args;
  std::memcpy(&a, parameters[0], sizeof a);
  std::memcpy(&b, parameters[1], sizeof b);
  std::memcpy(&args, parameters[3], sizeof args);
  const bool a_by_k = a.dims[0] == static_cast<unsigned>(args.k);
  const bool b_by_k = b.dims[0] == static_cast<unsigned>(args.k);
  for (int i = 0; i < args.m; ++i) {
    for (int j = 0; j < args.n; ++j) {
      float sum = 0;
      for (int l = 0; l < args.k; ++l) sum += sign_at(a, a_by_k, i, l) * sign_at(b, b_by_k, j, l);
      unsigned word;
      std::memcpy(&word, &sum, sizeof word);
      args.c[i * args.ldc + j] = word >> 16;
    }
  }
}
#endif
}  // namespace

extern "C" {
CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  return *context = nullptr, CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
CUresult cuStreamCreate(CUstream* stream, unsigned) { return *stream = nullptr, CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char** name) { return *name = "error", CUDA_SUCCESS; }
CUresult cuMemAlloc(CUdeviceptr* memory, size_t bytes) {
  *memory = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(512, (bytes + 511) / 512 * 512));
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8(CUdeviceptr memory, unsigned char fill, size_t bytes) {
  return std::memset(reinterpret_cast<void*>(memory), fill, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), CUDA_SUCCESS;
}
CUresult cuModuleLoad(CUmodule* module, const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  std::fclose(file);
  return *module = nullptr, CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  entry = name;
  return *function = nullptr, CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuTensorMapEncodeTiled(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank,
                                void* base, const cuuint64_t* dims, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (rank != 2) return CUDA_ERROR_INVALID_VALUE;
  const Map map{reinterpret_cast<unsigned long long>(base),
                {dims[0], dims[1]},
                strides[0],
                static_cast<unsigned>(type),
                {box[0], box[1]},
                {steps[0], steps[1]},
                static_cast<unsigned>(interleave),
                static_cast<unsigned>(swizzle),
                static_cast<unsigned>(promotion),
                static_cast<unsigned>(fill)};
  std::memcpy(to, &map, sizeof map);
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction, void** parameters, void**) {
  int overlaps = 0, cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      overlaps = attribute.value.programmaticStreamSerializationAllowed;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      cluster = attribute.value.clusterDim.x;
  }
  std::printf("{\"entry\": \"%s\", \"grid\": %u, \"block\": %u, \"smem\": %u, \"overlaps\": %d, "
              "\"cluster\": %d, \"parameters\": [",
              entry, config->gridDimX, config->blockDimX, config->sharedMemBytes, overlaps, cluster);
  if (std::strcmp(entry, "sm90_gemm") == 0) {
    for (int i = 0; i < 3; ++i) print_map(parameters[i]);
    print_block(parameters[3], 128);
  } else {
    print_block(parameters[0], COPY_BYTES);
    std::printf(", ");
    print_block(parameters[1], COPY_BYTES);
  }
  std::printf("]}\n");
#ifdef MULTIPLIES
  multiply(parameters);
#endif
  return CUDA_SUCCESS;
}
}
