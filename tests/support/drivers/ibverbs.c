/* A libibverbs whose devices are in FAKE_VERBS: "mlx5_0 mlx5_1=13 mlx5_2=hang mlx5_3=crash".
   A number is the errno that opening the device gives. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *names[64], *fates[64];
static void *devices[65];

void **ibv_get_device_list(int *count) {
    char *text = strdup(getenv("FAKE_VERBS") ? getenv("FAKE_VERBS") : "");
    int n = 0;
    for (char *word = strtok(text, " "); word && n < 64; word = strtok(NULL, " ")) {
        char *fate = strchr(word, '=');
        if (fate) *fate++ = 0;
        names[n] = word;
        fates[n] = fate ? fate : "";
        devices[n] = &names[n];
        n++;
    }
    if (count) *count = n;
    return devices;
}

const char *ibv_get_device_name(void *device) { return *(char **)device; }

void *ibv_open_device(void *device) {
    char *fate = fates[(char **)device - names];
    if (!strcmp(fate, "hang")) pause();
    if (!strcmp(fate, "crash")) abort();
    errno = atoi(fate);
    return errno ? NULL : device;
}

int ibv_close_device(void *context) { return 0; }
