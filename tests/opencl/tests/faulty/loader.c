/* An OpenCL loader in front of the system's, in which one function fails as drivers do: HONE_FAULT says which. All
 * other functions are those of the system's loader, which this library is linked to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static int is(const char *fault) {
  const char *wanted = getenv("HONE_FAULT");
  return wanted && !strcmp(wanted, fault);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* The third launch fails: a device whose driver has reset it. */
int clEnqueueNDRangeKernel(void *queue, void *kernel, unsigned axes, const size_t *offset, const size_t *all,
                           const size_t *block, unsigned waits, void *const *list, void **event) {
  static int launches;
  if (is("launch") && ++launches >= 3) return -36;
  return REAL(clEnqueueNDRangeKernel)(queue, kernel, axes, offset, all, block, waits, list, event);
}

/* A kernel that failed while it ran, and one that never ends. */
int clGetEventInfo(void *event, unsigned what, size_t size, void *value, size_t *length) {
  if (what == 0x11D3 && (is("event") || is("hang"))) {
    *(int *)value = is("hang") ? 1 : -14;
    return 0;
  }
  return REAL(clGetEventInfo)(event, what, size, value, length);
}

/* Memory that other programs hold. */
void *clCreateBuffer(void *context, unsigned long flags, size_t size, void *host, int *code) {
  if (is("memory")) {
    *code = -4;
    return 0;
  }
  return REAL(clCreateBuffer)(context, flags, size, host, code);
}

/* A platform without a device. */
int clGetDeviceIDs(void *platform, unsigned long kind, unsigned most, void **devices, unsigned *count) {
  if (is("no device")) return -1;
  return REAL(clGetDeviceIDs)(platform, kind, most, devices, count);
}

/* A device with little of everything. */
int clGetDeviceInfo(void *device, unsigned what, size_t size, void *value, size_t *length) {
  int code = REAL(clGetDeviceInfo)(device, what, size, value, length);
  if (code == 0 && value && is("small") && what == 0x101F) *(unsigned long *)value = 1000;
  if (code == 0 && value && is("few lanes") && what == 0x1004) *(size_t *)value = 64;
  return code;
}
