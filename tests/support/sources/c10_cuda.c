/* torch's CUDA base library, as far as the loader cares: it needs one libcudart, by version. */
#include <stddef.h>

int c10_error(int);
int cudaFree(void *);
int cudaGetDevice(int *);
int cudaMalloc(void **, size_t);
int cudaMemcpy(void *, const void *, size_t, int);

int c10_cuda_current_device(int *device) {
    return c10_error(cudaGetDevice(device));
}

int c10_cuda_clone(void **to, const void *from, size_t size) {
    int error = cudaMalloc(to, size);
    if (!error && (error = cudaMemcpy(*to, from, size, 3)))
        cudaFree(*to);
    return c10_error(error);
}
