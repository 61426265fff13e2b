/* Runs an artifact on tensors in the device's memory, and on arrays of the host, and says whether all answers are the same.
 *
 *   on_device MODEL.hone
 */
#include <hone.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the CUDA driver API, as its manual has them. */
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream);
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *stream);
int cuStreamCreate(void **stream, unsigned flags);

#define MOST 8

static void check(int code, const char *what) {
  if (code) {
    fprintf(stderr, "%s: %d, %s\n", what, code, hone_last_error() ? hone_last_error() : "");
    exit(1);
  }
}

/* Numbers around 0, others in each round. */
static void fill(float *numbers, size_t count, int round) {
  for (size_t i = 0; i < count; i++) numbers[i] = (float)((i * 37 + (size_t)round * 11) % 23) / 11.0f - 1.0f;
}

int main(int argc, char **argv) {
  void *context, *stream;
  check(argc != 2 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0), "the device");
  check(cuCtxSetCurrent(context) || cuStreamCreate(&stream, 1), "the stream");
  hone_model *model = hone_load(argv[1], NULL);
  check(!model, "hone_load");
  size_t ins = hone_input_count(model), outs = hone_output_count(model);
  check(ins > MOST || outs > MOST, "too many tensors");
  for (int round = 0; round < 4; round++) {
    const void *inputs[MOST], *given[MOST];
    void *outputs[MOST], *taken[MOST];
    /* Other addresses in each round. */
    for (size_t i = 0; i < ins; i++) {
      size_t bytes = hone_input(model, i)->bytes;
      unsigned long long address;
      float *numbers = malloc(bytes);
      check(!numbers, "memory");
      fill(numbers, bytes / sizeof(float), round);
      check(cuMemAlloc_v2(&address, bytes), "cuMemAlloc");
      check(cuMemcpyHtoDAsync_v2(address, numbers, bytes, stream), "cuMemcpyHtoDAsync");
      inputs[i] = numbers;
      /* The first input of every second round lies in the host's memory. */
      given[i] = i == 0 && round % 2 ? numbers : (const void *)address;
    }
    for (size_t i = 0; i < outs; i++) {
      size_t bytes = hone_output(model, i)->bytes;
      unsigned long long address;
      check(cuMemAlloc_v2(&address, bytes), "cuMemAlloc");
      outputs[i] = malloc(bytes);
      check(!outputs[i], "memory");
      taken[i] = (void *)address;
    }
    check(hone_run(model, given, taken), "hone_run on the device's memory");
    check(hone_run(model, inputs, outputs), "hone_run on the host's");
    for (size_t i = 0; i < outs; i++) {
      size_t bytes = hone_output(model, i)->bytes;
      void *found = malloc(bytes);
      check(!found, "memory");
      check(cuMemcpyDtoHAsync_v2(found, (unsigned long long)taken[i], bytes, stream), "cuMemcpyDtoHAsync");
      check(memcmp(found, outputs[i], bytes) != 0, "answers that differ");
    }
  }
  hone_free(model);
  puts("all answers are the same");
  return 0;
}
