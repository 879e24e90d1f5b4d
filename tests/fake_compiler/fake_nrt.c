// A stand-in for libnrt.so: the functions that a device kit calls, by nrt.h and nrt_experimental.h.
// What "runs" is handed over a Unix socket, named by FAKE_NEURON_DEVICE, to fake_device.py.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct { size_t size; char *data; } tensor_t;
typedef struct { int count; char names[256][256]; tensor_t *tensors[256]; } tensor_set_t;
typedef struct { char name[256]; int usage; size_t size; int dtype; uint32_t *shape; uint32_t ndim; } info_t;
typedef struct { uint64_t count; info_t infos[]; } info_array_t;
typedef struct { uint64_t id; info_array_t *infos; } model_t;

static int device = -1;

static int put(const void *data, size_t size) {
    for (size_t at = 0; at < size;) {
        ssize_t n = write(device, (const char *)data + at, size - at);
        if (n <= 0) return 1;
        at += (size_t)n;
    }
    return 0;
}

static int get(void *data, size_t size) {
    for (size_t at = 0; at < size;) {
        ssize_t n = read(device, (char *)data + at, size - at);
        if (n <= 0) return 1;
        at += (size_t)n;
    }
    return 0;
}

int nrt_init(int framework, const char *fw_version, const char *fal_version) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("FAKE_NEURON_DEVICE");
    printf("a line that runtimes print\n");
    fflush(stdout);
    if (framework != 1 || !fw_version || !fal_version || !path) return 2;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    device = socket(AF_UNIX, SOCK_STREAM, 0);
    return connect(device, (struct sockaddr *)&address, sizeof address) ? 2 : 0;
}

int nrt_load(const void *neff, size_t size, int32_t start, int32_t count, model_t **model) {
    uint64_t length = size, found;
    if (start != 0 || count != 1 || put("L", 1) || put(&length, 8) || put(neff, size)) return 2;
    *model = calloc(1, sizeof **model);
    if (get(&(*model)->id, 8) || get(&found, 8) || !(*model)->id) return 1;
    (*model)->infos = calloc(1, sizeof(info_array_t) + found * sizeof(info_t));
    (*model)->infos->count = found;
    for (uint64_t i = 0; i < found; i++) {
        uint64_t usage, bytes;
        info_t *info = &(*model)->infos->infos[i];
        if (get(info->name, 256) || get(&usage, 8) || get(&bytes, 8)) return 1;
        info->usage = (int)usage, info->size = bytes;
    }
    return 0;
}

int nrt_unload(model_t *model) { free(model->infos); free(model); return 0; }
int nrt_get_model_tensor_info(model_t *model, info_array_t **infos) { *infos = model->infos; return 0; }
int nrt_free_model_tensor_info(info_array_t *infos) { return infos ? 0 : 2; }
int nrt_allocate_tensor_set(tensor_set_t **set) { *set = calloc(1, sizeof **set); return 0; }
void nrt_destroy_tensor_set(tensor_set_t **set) { free(*set); *set = NULL; }

int nrt_tensor_allocate(int placement, int core, size_t size, const char *name, tensor_t **tensor) {
    if (placement != 0 || core != 0 || !name) return 2;
    *tensor = calloc(1, sizeof **tensor);
    (*tensor)->size = size, (*tensor)->data = calloc(1, size ? size : 1);
    return 0;
}

void nrt_tensor_free(tensor_t **tensor) { free((*tensor)->data); free(*tensor); *tensor = NULL; }

int nrt_tensor_write(tensor_t *tensor, const void *data, uint64_t offset, size_t size) {
    if (offset + size > tensor->size) return 2;
    memcpy(tensor->data + offset, data, size);
    return 0;
}

int nrt_tensor_read(const tensor_t *tensor, void *data, uint64_t offset, size_t size) {
    if (offset + size > tensor->size) return 2;
    memcpy(data, tensor->data + offset, size);
    return 0;
}

int nrt_add_tensor_to_tensor_set(tensor_set_t *set, const char *name, tensor_t *tensor) {
    if (set->count == 256) return 2;
    strncpy(set->names[set->count], name, 255);
    set->tensors[set->count++] = tensor;
    return 0;
}

static tensor_t *named(const tensor_set_t *set, const char *name) {
    for (int i = 0; i < set->count; i++)
        if (!strcmp(set->names[i], name)) return set->tensors[i];
    return NULL;
}

int nrt_execute(model_t *model, const tensor_set_t *inputs, tensor_set_t *outputs) {
    uint64_t status;
    if (put("X", 1) || put(&model->id, 8)) return 2;
    for (int usage = 0; usage < 2; usage++) {
        if (usage && (get(&status, 8) || status == 255)) abort();
        if (usage && status) return (int)status;
        for (uint64_t i = 0; i < model->infos->count; i++) {
            const info_t *info = &model->infos->infos[i];
            tensor_t *tensor = named(usage ? outputs : inputs, info->name);
            if (info->usage != usage) continue;
            if (!tensor || tensor->size != info->size) return 2;
            if (usage ? get(tensor->data, tensor->size) : put(tensor->data, tensor->size)) return 2;
        }
    }
    return 0;
}

void nrt_close(void) { close(device); }
