/* A libcudart of any version, without a device: it knows its version, and every call fails. */
#define NO_DEVICE 100

/* clang-format off */
#define FAILS(name) int name(void); int name(void) { return NO_DEVICE; }
FAILS(cudaDeviceSynchronize)
FAILS(cudaFree)
FAILS(cudaFreeHost)
FAILS(cudaGetDevice)
FAILS(cudaLaunchKernel)
FAILS(cudaMalloc)
FAILS(cudaMallocHost)
FAILS(cudaMemGetInfo)
FAILS(cudaMemcpy)
FAILS(cudaSetDevice)
/* clang-format on */

const char *cudaGetErrorString(int error) {
    (void)error;
    return "stand-in CUDA runtime";
}

int cudaRuntimeGetVersion(int *version) {
    *version = VERSION;
    return 0;
}

/* Without a driver the real one answers 0, too. */
int cudaDriverGetVersion(int *version) {
    *version = 0;
    return 0;
}
