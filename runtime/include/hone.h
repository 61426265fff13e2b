/* Hone: load a compiled model and run it.
 *
 *   hone_model *model = hone_load("model.hone", NULL);
 *   if (!model) { fprintf(stderr, "%s\n", hone_last_error()); exit(1); }
 *   const void *inputs[] = {x};
 *   void *outputs[] = {y};
 *   if (hone_run(model, inputs, outputs)) { ... }
 *   hone_free(model);
 *
 * An artifact holds machine code that runs in this process: load only what you trust.
 * Every function may be called from any thread. Link with -lhone_runtime, or with libhone_runtime.a
 * -lpthread -ldl -lm.
 */
#ifndef HONE_H
#define HONE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A loaded model with all that one run at a time needs. */
typedef struct hone_model hone_model;

/* Element types. Multi-byte elements are in this machine's byte order. */
typedef enum hone_dtype {
  HONE_F32 = 0,
  HONE_F16 = 1,  /* IEEE 754 binary16, as uint16_t */
  HONE_BF16 = 2, /* upper half of a binary32, as uint16_t */
  HONE_F64 = 3,
  HONE_I8 = 4,
  HONE_U8 = 5,
  HONE_I16 = 6,
  HONE_U16 = 7,
  HONE_I32 = 8,
  HONE_U32 = 9,
  HONE_I64 = 10,
  HONE_U64 = 11,
  HONE_BOOL = 12 /* one byte, 0 or 1 */
} hone_dtype;

/* A dense input or output, row major, last axis fastest. It lives as long as its model. */
typedef struct hone_tensor {
  const char *name;
  uint32_t dtype;        /* a hone_dtype */
  uint32_t rank;         /* number of axes; 0 for a scalar */
  const uint64_t *shape; /* rank extents; of an axis that a run decides, the most that it may be */
  uint64_t bytes;        /* size of the whole tensor */
} hone_tensor;

/* Which processors the pool's threads stay on. There is one pool in a process, shared by all models. */
enum {
  HONE_AFFINITY_NONE = 0,  /* wherever the system puts them */
  HONE_AFFINITY_PINNED = 1 /* each on a processor of its own, the first left to the caller */
};

/* What to ask 2 MiB pages for. */
enum {
  HONE_HUGE_PAGES_ARENA = 0,
  HONE_HUGE_PAGES_NONE = 1,
  HONE_HUGE_PAGES_ARENA_AND_WEIGHTS = 2 /* copies the weights out of the file */
};

/* Start from HONE_OPTIONS_INIT; zero is the default of every other field. */
typedef struct hone_options {
  uint32_t size;           /* sizeof(hone_options) */
  uint32_t threads;        /* most threads of a run with the caller's; 0 for all cores */
  uint32_t affinity;       /* HONE_AFFINITY_... */
  uint32_t huge_pages;     /* HONE_HUGE_PAGES_... */
  uint32_t skip_checksums; /* not 0: do not look for damage when loading */
  uint32_t device_timeout_seconds; /* how long a run waits for an accelerator; 0 for 300 */
} hone_options;

#define HONE_OPTIONS_INIT {sizeof(hone_options), 0, 0, 0, 0, 0}

/* Version of the library, for example "0.1.0". */
const char *hone_version(void);

/* What went wrong in this thread's last call that failed; valid until its next one that does. */
const char *hone_last_error(void);

/* Maps, checks and prepares the artifact at path. options may be NULL. NULL on failure. The file must stay
 * as it is until the model and all that share it are freed; to replace it, rename another over it. */
hone_model *hone_load(const char *path, const hone_options *options);

/* The same from memory, which must stay as it is until the model and all that share it are freed. It is
 * used in place where it is 64-byte aligned; weights are copied where not. */
hone_model *hone_load_memory(const void *data, size_t size, const hone_options *options);

/* Another model over the same code and weights, to run beside this one. NULL on failure. */
hone_model *hone_share(const hone_model *model);

/* Frees a model that is not running. NULL is let be. */
void hone_free(hone_model *model);

/* The model's inputs and outputs in order, at the sizes that it is set to; NULL for an index past the last. */
size_t hone_input_count(const hone_model *model);
size_t hone_output_count(const hone_model *model);
const hone_tensor *hone_input(const hone_model *model, size_t index);
const hone_tensor *hone_output(const hone_model *model, size_t index);

/* An artifact may serve several sizes of a model's open dimensions, a variant for each; one otherwise. A loaded or
 * shared model is set to the first variant, which is the largest. These are the inputs and outputs of each. */
size_t hone_variant_count(const hone_model *model);
const hone_tensor *hone_variant_input(const hone_model *model, size_t variant, size_t index);
const hone_tensor *hone_variant_output(const hone_model *model, size_t variant, size_t index);

/* The axis of an input along which an artifact takes any size, such as the batch; -1 where it takes those of its variants
 * alone, and for an index past the last. */
int hone_open_axis(const hone_model *model, size_t index);

/* The axis of an input of which an artifact takes every size from 1 to that of its first variant, such as the length of a
 * sequence; from 0 where something is joined to it, as new tokens are to a decoder's past: then inputs that hold both have as
 * many more than those of the past alone as in the first variant. Where windows need several positions, sizes begin with the
 * first one that all of them fit into, and some models take multiples of a number alone: the error of hone_set_input_shapes
 * says so. -1 where there is none, and for an index past the last. A run takes the time of the next larger variant. */
int hone_bounded_axis(const hone_model *model, size_t index);

/* Sets a model to the variant whose inputs have these shapes: a list of extents for each input, as long as its rank.
 * Where one axis may have any size (hone_open_axis), a run at a size without a variant is a run of several variants, one
 * after the other, over slices of the inputs and outputs; 0 gives empty outputs. Where one may have any size up to a bound
 * (hone_bounded_axis), the model lays inputs into memory with room for the next larger variant, and takes outputs from it.
 * Runs, hone_input and hone_output then have these sizes, and what hone_input and hone_output gave before is no longer
 * to be used; nothing is copied. No other thread may ask the model for anything meanwhile. A shape that the artifact does
 * not serve is an error, which names the input and what it takes: nothing is padded. 0 on success. */
int hone_set_input_shapes(hone_model *model, const uint64_t *const *shapes);
/* Inputs and outputs as users of the model know them, in order, each with the next tensors; NULL for an index past
 * the last. It lives as long as its model. */
typedef struct hone_member {
  const char *name;
  uint32_t form;    /* a hone_member_form */
  uint32_t tensors; /* how many of the next tensors it is made of */
  uint32_t text;    /* not 0: the elements of its tensors (of a map or maps: the keys), of HONE_U64, are handles of
                     * strings */
  uint32_t text_values; /* not 0: the values of a map, of HONE_U64, are handles of strings */
} hone_member;

typedef enum hone_member_form {
  HONE_TENSOR = 0,   /* one tensor, of its name */
  HONE_SEQUENCE = 1, /* a list of tensors, called name[0], name[1] and so on */
  HONE_ABSENT = 2,   /* an optional value that is not there: no tensor */
  HONE_MAPS = 3,     /* a list of maps: the keys of all, [n], and the values, a map in each row, [maps, n] */
  HONE_MAP = 4       /* a map: name.keys and name.values, both with room for as many, [room], and name.count, an HONE_I64
                      * without axes: the first so many keys are there, each once, and what lies behind them is not read */
} hone_member_form;

const hone_member *hone_input_member(const hone_model *model, size_t index);
const hone_member *hone_output_member(const hone_model *model, size_t index);

/* The handle of a string, of length bytes of UTF-8, for the elements of an input. The model keeps the string until
 * hone_clear_texts. Equal strings have equal handles. 0 on success. */
int hone_text_handle(hone_model *model, const char *text, size_t length, uint64_t *handle);

/* The string that an element of an output stands for: length bytes of UTF-8 without a zero at their end, valid until
 * hone_clear_texts. 0 on success. */
int hone_text(const hone_model *model, uint64_t handle, const char **text, size_t *length);

/* Forgets the strings that were given or made by runs. 0 on success. */
int hone_clear_texts(hone_model *model);

/* Models with ONNX's ImageDecoder need something that decodes images. A library that was built with the feature `images`
 * has decoders of all of ONNX's formats; the others take one, before a model is loaded. It serves all models of the process,
 * is called during hone_run, from several threads at once where several models run, and must not fail by a signal: bytes
 * come from an input, and nobody has looked at them. It writes height * width * channels bytes, row by row, channels
 * innermost, as format says, and gives 0, or anything else where it cannot, an image of another size among that: then
 * the run is refused. NULL goes back to what the library has itself. */
typedef enum hone_pixel_format { HONE_RGB = 0, HONE_BGR = 1, HONE_GRAYSCALE = 2 } hone_pixel_format;
typedef int (*hone_image_decoder)(void *user, const uint8_t *bytes, size_t length, uint32_t format, uint64_t height,
                                  uint64_t width, uint8_t *pixels);
void hone_set_image_decoder(hone_image_decoder decoder, void *user);
/* 1 where images can be decoded now, else 0. */
int hone_has_image_decoder(void);

/* Bytes of weights, arena and scratch together. */
uint64_t hone_memory_bytes(const hone_model *model);

/* Reads the inputs and fills the outputs. Each list has the model's number of pointers, each to its
 * tensor's bytes, aligned to its element; outputs overlap nothing. Allocates nothing. One run of a model
 * at a time: a second one is refused. While it runs, subnormal numbers count as zero; the calling thread's
 * floating-point mode is restored before it returns. Where an NVIDIA device runs the model, pointers may also be addresses in
 * its memory (those of cuMemAlloc), unless inputs are padded (hone_bounded_axis): what wrote the inputs has to be done
 * before the call, and the outputs are there when it returns. 0 on success. */
int hone_run(hone_model *model, const void *const *inputs, void *const *outputs);

/* Writes the extents of an output as the last run left them: those of its hone_tensor, but for axes that a run
 * decides (collected values of a loop). Such an output's first bytes are the tensor of this shape, dense and row
 * major, and all behind them are zero. shape has room for rank extents. 0 on success. */
int hone_output_shape(const hone_model *model, size_t index, uint64_t *shape);

#ifdef __cplusplus
}
#endif

#endif
