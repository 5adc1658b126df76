/* A record of what a CUDA process does: each kernel, copy and fill of the GPU, each call of the runtime.

   The driver loads this library at its start if CUDA_INJECTION64_PATH names it (CUPTI's documentation,
   "Injection"). Rows go to the file that FTBUILD_TRACE names, separated by tabs: kind, start and end in
   nanoseconds, stream or thread, name. Built with the CUPTI of the server's CUDA, as in

   gcc -shared -fPIC -O2 -I CUPTI/include -I CUDA/include trace.c -o trace.so \
       -L CUPTI/lib -l:libcupti.so.11.8 -lstdc++ */

#include <cupti.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* A server may end without its exit handlers, and only full buffers come by themselves: they are small. */
#define BUFFER_BYTES (128u << 10)
#define ALIGNMENT 8u
#define FLUSH_MILLISECONDS 500

/* The newest record that each header knows is also what its library writes. */
#if CUPTI_API_VERSION >= 130000 /* CUDA 13.0 */
typedef CUpti_ActivityKernel10 Kernel;
typedef CUpti_ActivityMemcpy6 Copy;
#else /* CUDA 11.8 */
typedef CUpti_ActivityKernel8 Kernel;
typedef CUpti_ActivityMemcpy5 Copy;
#endif

/* Of the C++ runtime (Itanium C++ ABI, 3.4). */
char* __cxa_demangle(const char* mangled, char* buffer, size_t* length, int* status);

static FILE* out;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static void write_kernel(const Kernel* kernel)
{
    int status = 0;
    char* readable = __cxa_demangle(kernel->name, NULL, NULL, &status);
    fprintf(out, "kernel\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu32 "\t%s\n", kernel->start, kernel->end, kernel->streamId,
            readable ? readable : kernel->name);
    free(readable);
}

static void write_row(CUpti_Activity* record)
{
    switch (record->kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
            write_kernel((const Kernel*)record);
            break;
        case CUPTI_ACTIVITY_KIND_MEMCPY: {
            const Copy* copy = (const Copy*)record;
            fprintf(out, "copy\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu32 "\tcopy, kind %d, %" PRIu64 " bytes\n", copy->start,
                    copy->end, copy->streamId, copy->copyKind, copy->bytes);
            break;
        }
        case CUPTI_ACTIVITY_KIND_MEMSET: {
            CUpti_ActivityMemset4* fill = (CUpti_ActivityMemset4*)record;
            fprintf(out, "fill\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu32 "\tfill, %" PRIu64 " bytes\n", fill->start,
                    fill->end, fill->streamId, fill->bytes);
            break;
        }
        case CUPTI_ACTIVITY_KIND_RUNTIME: {
            CUpti_ActivityAPI* call = (CUpti_ActivityAPI*)record;
            const char* name = NULL;
            cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, call->cbid, &name);
            fprintf(out, "call\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu32 "\t%s\n", call->start, call->end, call->threadId,
                    name ? name : "?");
            break;
        }
        default:
            break;
    }
}

/* Say which call failed; returns whether it succeeded. */
static int succeeded(const char* call, CUptiResult result)
{
    const char* why = NULL;
    if (result == CUPTI_SUCCESS)
        return 1;
    cuptiGetResultString(result, &why);
    fprintf(stderr, "trace: %s: %s\n", call, why ? why : "?");
    return 0;
}

static void CUPTIAPI lend(uint8_t** buffer, size_t* size, size_t* most_records)
{
    *size = BUFFER_BYTES;
    *most_records = 0;
    *buffer = aligned_alloc(ALIGNMENT, BUFFER_BYTES);
}

static void CUPTIAPI take(CUcontext context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid)
{
    CUpti_Activity* record = NULL;
    pthread_mutex_lock(&writing);
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        write_row(record);
    fflush(out);
    pthread_mutex_unlock(&writing);
    free(buffer);
}

static void end(void)
{
    succeeded("cuptiActivityFlushAll", cuptiActivityFlushAll(1));
}

int InitializeInjection(void)
{
    const char* file = getenv("FTBUILD_TRACE");
    const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                        CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME};
    if (!file || !(out = fopen(file, "a"))) {
        fprintf(stderr, "trace: FTBUILD_TRACE names no file that can be written\n");
        return 0;
    }
    if (!succeeded("cuptiActivityRegisterCallbacks", cuptiActivityRegisterCallbacks(lend, take)))
        return 0;
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        if (!succeeded("cuptiActivityEnable", cuptiActivityEnable(kinds[kind])))
            return 0;
    succeeded("cuptiActivityFlushPeriod", cuptiActivityFlushPeriod(FLUSH_MILLISECONDS));
    atexit(end);
    return 1;
}
