// A backend of ggml with one device that computes nothing, for tests of how backends are found, tried and listed.
// INTERFACE is the version that it speaks; with CRASH it ends its process as it is loaded.
#include <stdlib.h>
#include <stddef.h>

typedef struct device device;
typedef struct backend backend;

// As ggml-backend-impl.h declares them; what listing a device does not call is left out as null.
struct device {
    const char * (*name)(device *);
    const char * (*description)(device *);
    void (*memory)(device *, size_t *, size_t *);
    int (*type)(device *);
    void (*properties)(device *, void *);
    void * (*others[10])(void);
    backend * owner;
    void * context;
};

struct backend {
    int interface;
    const char * (*name)(backend *);
    size_t (*count)(backend *);
    device * (*get)(backend *, size_t);
    void * (*address)(backend *, const char *);
    void * context;
};

struct properties { const char * name; const char * description; size_t free, total; int type; const char * place; _Bool can[4]; };

size_t ggml_tensor_overhead(void);

static const char * device_name(device * one) { (void) one; return "Stub0"; }
static const char * device_description(device * one) { (void) one; return "a device that computes nothing"; }
static void device_memory(device * one, size_t * free, size_t * total) { (void) one; *free = 3000000000; *total = 4000000000; }
static int device_type(device * one) { (void) one; return 1; }
static void device_properties(device * one, void * out) {
    struct properties * all = out;
    all->name = device_name(one);
    all->description = device_description(one);
    device_memory(one, &all->free, &all->total);
    all->type = device_type(one);
}

static backend self;
static device only = { device_name, device_description, device_memory, device_type, device_properties, { NULL }, &self, NULL };

static const char * backend_name(backend * own) { (void) own; return "Stub"; }
static size_t backend_count(backend * own) { (void) own; return ggml_tensor_overhead() != 0; }
static device * backend_get(backend * own, size_t index) { (void) own; (void) index; return &only; }

static backend self = { INTERFACE, backend_name, backend_count, backend_get, NULL, NULL };

backend * ggml_backend_init(void) {
#ifdef CRASH
    abort();
#endif
    return &self;
}
