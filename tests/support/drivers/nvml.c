/* An NVML whose GPUs are in FAKE_NVML, a word for each: ok, lost, ecc=2, pending, failed, fabric=2,
   recovery=1, throttled=128, old (a driver that knows no health), hang, mig=2 (in slices, of which
   those with numbers 0 and 2 may be used), used=60 (GiB of 80, percent, degrees).
   "error=18" alone: no start.
   FAKE_NODE becomes part of their UUIDs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOT_SUPPORTED = 3, NOT_FOUND = 6, LOST = 15 };
static char *gpus[64];
static char slices[64][7]; /* a place for each, to point to */
static unsigned count;

typedef struct {
    unsigned field, scope;
    long long time, latency;
    unsigned type, result;
    union { unsigned number; unsigned long long wide; } value;
} field_t;
typedef struct {
    unsigned long long total, free, used;
} memory_t;
typedef struct {
    unsigned gpu, memory;
} rates_t;
typedef struct {
    unsigned char cluster[16];
    unsigned status, clique;
    unsigned char state;
} fabric_t;

static int number(char *gpu, const char *name, int otherwise) {
    size_t length = strlen(name);
    return !strncmp(gpu, name, length) && gpu[length] == '=' ? atoi(gpu + length + 1) : otherwise;
}

int nvmlInitWithFlags(unsigned flags) {
    char *text = strdup(getenv("FAKE_NVML"));
    int error = number(text, "error", 0);
    count = 0;
    for (char *word = strtok(text, " "); word && count < 64; word = strtok(NULL, " "))
        gpus[count++] = word;
    return error;
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "570.86.15");
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *found) {
    *found = count;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = &gpus[index];
    return strcmp(gpus[index], "lost") ? 0 : LOST;
}

int nvmlDeviceGetName(char **gpu, char *text, unsigned length) {
    if (!strcmp(*gpu, "hang")) pause();
    snprintf(text, length, "NVIDIA H100 80GB HBM3");
    return 0;
}

int nvmlDeviceGetMigMode(char **gpu, unsigned *current, unsigned *pending) {
    *current = *pending = !strncmp(*gpu, "mig=", 4);
    return strcmp(*gpu, "old") ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetMaxMigDeviceCount(char **gpu, unsigned *most) {
    *most = 7;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(char **gpu, unsigned index, void **slice) {
    int last = number(*gpu, "mig", 0);
    *slice = &slices[gpu - gpus][index];
    return last && (index == 0 || index == last) ? 0 : NOT_FOUND;
}

int nvmlDeviceGetUUID(char **gpu, char *text, unsigned length) {
    if ((char *)gpu >= slices[0] && (char *)gpu < slices[64]) {
        long place = (char *)gpu - slices[0];
        snprintf(text, length, "MIG-%ld-%ld", place / 7, place % 7);
        return 0;
    }
    char *node = getenv("FAKE_NODE");
    snprintf(text, length, "GPU-%s%08lx", node ? node : "", (unsigned long)(gpu - gpus));
    return 0;
}

int nvmlDeviceGetTotalEccErrors(char **gpu, int type, int counter, unsigned long long *errors) {
    *errors = number(*gpu, "ecc", 0);
    return strcmp(*gpu, "old") ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(char **gpu, unsigned long long *reasons) {
    *reasons = number(*gpu, "throttled", 0);
    return strcmp(*gpu, "old") ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetRemappedRows(char **gpu, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
    *corrected = *uncorrected = 0;
    *pending = !strcmp(*gpu, "pending");
    *failed = !strcmp(*gpu, "failed");
    return strcmp(*gpu, "old") ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetFieldValues(char **gpu, int length, field_t *values) {
    values->result = strcmp(*gpu, "old") ? 0 : NOT_SUPPORTED;
    values->value.number = number(*gpu, "recovery", 0);
    return 0;
}

int nvmlDeviceGetGpuFabricInfo(char **gpu, fabric_t *info) {
    info->state = number(*gpu, "fabric", 3);
    return strcmp(*gpu, "old") ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(char **gpu, memory_t *memory) {
    memory->total = 80ull << 30;
    memory->used = (unsigned long long)number(*gpu, "used", 0) << 30;
    memory->free = memory->total - memory->used;
    return strcmp(*gpu, "old") ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetUtilizationRates(char **gpu, rates_t *rates) {
    rates->gpu = rates->memory = number(*gpu, "used", 0);
    return strcmp(*gpu, "old") && strncmp(*gpu, "mig=", 4) ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetTemperature(char **gpu, int sensor, unsigned *degrees) {
    *degrees = number(*gpu, "used", 30);
    return strcmp(*gpu, "old") ? 0 : NOT_SUPPORTED;
}
