// The peak rate of fused multiply-adds in f32 of the processor that runs this, in GFLOP/s, and that of additions of
// integers, in 10^9 a second.
//
// `cargo xtask bench-peers` compiles this for the machine at hand and runs it between the peers:
// `fma_probe THREADS MILLISECONDS` prints both, each the sum over its threads and measured for that time.
//
// The second one shows what the first does not: a neighbour on the same core takes every other decoded instruction, which
// code of few, large instructions hardly notices and most other code does.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif

typedef float vector __attribute__((vector_size(BYTES)));

// Independent sums: more than latency (4 or 5) times units (2) ask for, fewer than registers.
#define SUMS 12
#define STEPS 100000

static double target_seconds;
// Read at run time, so that the compiler cannot work the sums out.
static volatile float factor = 0.999f, term = 0.001f;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// Rates of one thread.
struct rates {
  double flops, additions;
};

// Independent sums: more than any processor adds in a cycle.
#define INTEGERS 8

// Additions of registers in 10^9 a second. The empty assembly keeps the compiler from joining them.
static double additions(void) {
  size_t sums[INTEGERS] = {0}, one = 1;
  double start = now(), steps = 0;
  while (now() - start < target_seconds) {
    for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 8
      for (int i = 0; i < INTEGERS; i++) {
        sums[i] += one;
        __asm__ volatile("" : "+r"(sums[i]));
      }
    }
    steps += STEPS;
  }
  return steps * INTEGERS / (now() - start) / 1e9;
}

static void *measure(void *result) {
  vector a = (vector){0} + factor, b = (vector){0} + term, sums[SUMS];
  for (int i = 0; i < SUMS; i++) sums[i] = (vector){0} + (float)i;
  double start = now(), steps = 0;
  while (now() - start < target_seconds) {
    for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 12
      for (int i = 0; i < SUMS; i++) sums[i] = sums[i] * a + b;
    }
    steps += STEPS;
  }
  double seconds = now() - start;
  volatile float sink;
  for (int i = 0; i < SUMS; i++) sink = sums[i][0];
  (void)sink;
  struct rates *rates = result;
  rates->flops = steps * SUMS * (BYTES / 4) * 2 / seconds / 1e9;
  rates->additions = additions();
  return NULL;
}

int main(int count, char **arguments) {
  if (count != 3) return fprintf(stderr, "usage: fma_probe THREADS MILLISECONDS\n"), 2;
  int threads = atoi(arguments[1]);
  target_seconds = atof(arguments[2]) * 1e-3;
  if (threads < 1 || threads > 1024) return 2;
  pthread_t ids[1024];
  struct rates rates[1024], sum = {0, 0};
  for (int i = 0; i < threads; i++)
    if (pthread_create(&ids[i], NULL, measure, &rates[i])) return 1;
  for (int i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    sum.flops += rates[i].flops;
    sum.additions += rates[i].additions;
  }
  printf("%.1f %.2f\n", sum.flops, sum.additions);
  return 0;
}
