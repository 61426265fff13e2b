/* Runs an artifact over raw files:
 *
 *   run MODEL.hone [-s 1,16]... INPUT.bin... OUTPUT.bin...
 *
 * with as many files as the model has inputs and outputs, in its order. Of an artifact for several sizes, -s gives the
 * shape of each input, in order; without it the largest are run. Build it with
 *
 *   cc -I runtime/include examples/c/run.c -L target/release -lhone_runtime -o run
 */
#include <hone.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const types[] = {"f32", "f16", "bf16", "f64", "i8",  "u8",  "i16",
                                    "u16", "i32", "u32",  "i64", "u64", "bool"};

static void describe(const char *role, const hone_tensor *tensor) {
  printf("%s %s %s [", role, tensor->name, types[tensor->dtype]);
  for (uint32_t axis = 0; axis < tensor->rank; axis++)
    printf("%s%llu", axis ? "," : "", (unsigned long long)tensor->shape[axis]);
  printf("] %llu bytes\n", (unsigned long long)tensor->bytes);
}

static void *allocate(const hone_tensor *tensor) {
  void *buffer = malloc(tensor->bytes ? tensor->bytes : 1);
  if (!buffer) {
    fprintf(stderr, "no memory for tensor '%s'\n", tensor->name);
    exit(1);
  }
  return buffer;
}

static void read_file(const char *path, void *buffer, size_t bytes) {
  FILE *file = fopen(path, "rb");
  if (!file || fread(buffer, 1, bytes, file) != bytes || fgetc(file) != EOF) {
    fprintf(stderr, "'%s' cannot be read or is not %zu bytes long\n", path, bytes);
    exit(1);
  }
  fclose(file);
}

static void write_file(const char *path, const void *buffer, size_t bytes) {
  FILE *file = fopen(path, "wb");
  int failed = !file || fwrite(buffer, 1, bytes, file) != bytes;
  if (failed || fclose(file)) {
    fprintf(stderr, "'%s' cannot be written\n", path);
    exit(1);
  }
}

/* Sets the model to the shapes that follow each -s; gives the number of arguments that they take. */
static int set_shapes(hone_model *model, char **argv) {
  size_t ins = hone_input_count(model);
  uint64_t **shapes = calloc(ins + 1, sizeof *shapes);
  int used = 0;
  for (size_t i = 0; shapes && i < ins && argv[used] && !strcmp(argv[used], "-s") && argv[used + 1]; i++, used += 2) {
    uint32_t rank = hone_input(model, i)->rank;
    char *rest = argv[used + 1];
    shapes[i] = calloc(rank + 1, sizeof **shapes);
    for (uint32_t axis = 0; shapes[i] && axis < rank; axis++, rest += *rest == ',') shapes[i][axis] = strtoull(rest, &rest, 10);
  }
  if (used && hone_set_input_shapes(model, (const uint64_t *const *)shapes)) {
    fprintf(stderr, "%s\n", hone_last_error());
    exit(1);
  }
  for (size_t i = 0; shapes && i < ins; i++) free(shapes[i]);
  free(shapes);
  return used;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s MODEL.hone [-s 1,16]... INPUT.bin... OUTPUT.bin...\n", argv[0]);
    return 2;
  }
  hone_model *model = hone_load(argv[1], NULL);
  if (!model) {
    fprintf(stderr, "%s\n", hone_last_error());
    return 1;
  }
  int used = set_shapes(model, argv + 2);
  argv += used;
  argc -= used;
  size_t ins = hone_input_count(model), outs = hone_output_count(model);
  if ((size_t)argc != 2 + ins + outs) {
    fprintf(stderr, "the model has %zu inputs and %zu outputs\n", ins, outs);
    return 2;
  }
  const void **inputs = calloc(ins + 1, sizeof *inputs);
  void **outputs = calloc(outs + 1, sizeof *outputs);
  if (!inputs || !outputs) return 1;
  for (size_t i = 0; i < ins; i++) {
    const hone_tensor *tensor = hone_input(model, i);
    void *buffer = allocate(tensor);
    describe("input", tensor);
    read_file(argv[2 + i], buffer, tensor->bytes);
    inputs[i] = buffer;
  }
  for (size_t i = 0; i < outs; i++) {
    describe("output", hone_output(model, i));
    outputs[i] = allocate(hone_output(model, i));
  }
  if (hone_run(model, inputs, outputs)) {
    fprintf(stderr, "%s\n", hone_last_error());
    return 1;
  }
  for (size_t i = 0; i < outs; i++) write_file(argv[2 + ins + i], outputs[i], hone_output(model, i)->bytes);
  for (size_t i = 0; i < ins; i++) free((void *)inputs[i]);
  for (size_t i = 0; i < outs; i++) free(outputs[i]);
  free(inputs);
  free(outputs);
  hone_free(model);
  return 0;
}
