/* Calls functions of libraries with arrays of files, as test_interfaces.py says.

   calls CASES         each case, its errors, and all cases on four threads
   calls CASES memory  that too little memory is told
   calls CASES bare    without values in work memory, for valgrind to look at */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { MOST = 12, GUARD = 64, THREADS = 4, ROUNDS = 3, MOST_MEMORY = 1 << 26 };
enum { OK, POINTER, SAMPLES, OVERLAP, MEMORY, INDEX };

struct function {
  const char *name;
  int samples, inputs, outputs;
  int32_t (*call)(int64_t n, void **p);
  int32_t (*call_with_work)(int64_t n, void **p, void *work);
  int64_t (*work_bytes)(int64_t n);
};

#include "table.h"

/* A file's array: an input, or an output as it should be. */
struct tensor {
  char kind;
  size_t element, bytes;
  unsigned char *data;
};

struct one_case {
  const struct function *function;
  int64_t n;
  int32_t status;
  struct tensor tensors[MOST];
  unsigned char *found[MOST]; /* outputs of the first call */
};

static int bare;

static void fail(const struct one_case *c, const char *what, int place) {
  fprintf(stderr, "%s, n = %" PRId64 ": %s (%d)\n", c->function->name, c->n, what, place);
  exit(1);
}

static void *memory(size_t bytes) {
  void *found = malloc(bytes ? bytes : 1);
  if (!found) exit(2);
  return found;
}

static int count(const struct one_case *c) {
  return c->function->inputs + c->function->outputs;
}

static int is_output(const struct one_case *c, int k) { return k >= c->function->inputs; }

/* The arrays of a call: inputs as long as they are, outputs between guards. */
static void fill(const struct one_case *c, void **blocks, void **p) {
  for (int k = 0; k < count(c); k++) {
    const struct tensor *t = &c->tensors[k];
    if (is_output(c, k)) {
      blocks[k] = memory(t->bytes + 2 * GUARD);
      memset(blocks[k], 0xA5, t->bytes + 2 * GUARD);
      p[k] = (unsigned char *)blocks[k] + GUARD;
    } else {
      p[k] = blocks[k] = memory(t->bytes);
      memcpy(p[k], t->data, t->bytes);
    }
  }
}

static void release(const struct one_case *c, void **blocks) {
  for (int k = 0; k < count(c); k++) free(blocks[k]);
}

static int all_are(const unsigned char *p, size_t bytes, unsigned char value) {
  for (size_t i = 0; i < bytes; i++)
    if (p[i] != value) return 0;
  return 1;
}

/* That nothing but outputs was written, and these only if the call did something. */
static void check_memory(const struct one_case *c, void **blocks, int written) {
  for (int k = 0; k < count(c); k++) {
    const struct tensor *t = &c->tensors[k];
    const unsigned char *block = blocks[k];
    if (!is_output(c, k)) {
      if (memcmp(block, t->data, t->bytes)) fail(c, "an input was written", k);
    } else if (!all_are(block, GUARD, 0xA5) || !all_are(block + GUARD + t->bytes, GUARD, 0xA5)) {
      fail(c, "memory beside an output was written", k);
    } else if (!written && !all_are(block + GUARD, t->bytes, 0xA5)) {
      fail(c, "an output was written in spite of an error", k);
    }
  }
}

static double number(const struct tensor *t, const unsigned char *data, size_t i) {
  float f;
  double d;
  if (t->element == 4) {
    memcpy(&f, data + 4 * i, 4);
    return f;
  }
  memcpy(&d, data + 8 * i, 8);
  return d;
}

static void check_numbers(const struct one_case *c, void **p) {
  for (int k = c->function->inputs; k < count(c); k++) {
    const struct tensor *t = &c->tensors[k];
    if (t->kind != 'f') {
      if (memcmp(p[k], t->data, t->bytes)) fail(c, "another output", k);
      continue;
    }
    double largest = 1e-30, far = 0;
    for (size_t i = 0; i < t->bytes / t->element; i++) {
      double wanted = number(t, t->data, i), found = number(t, p[k], i);
      if (!isfinite(found)) fail(c, "an output is not finite", k);
      largest = fmax(largest, fabs(wanted));
      far = fmax(far, fabs(wanted - found));
    }
    if (far > (t->element == 4 ? 2e-5 : 1e-12) * largest) fail(c, "another output", k);
  }
}

static void check_bits(const struct one_case *c, void **p) {
  for (int k = c->function->inputs; k < count(c); k++)
    if (memcmp(p[k], c->found[k], c->tensors[k].bytes)) fail(c, "other bits", k);
}

/* A call in the case's memory, then one with memory of ours. */
static void call(struct one_case *c, int is_first) {
  const struct function *f = c->function;
  void *blocks[MOST], *p[MOST];
  fill(c, blocks, p);
  if (f->call(c->n, p) != c->status) fail(c, "another status", 0);
  check_memory(c, blocks, 1);
  if (c->status == OK) {
    check_numbers(c, p);
    if (is_first)
      for (int k = f->inputs; k < count(c); k++) {
        c->found[k] = memory(c->tensors[k].bytes);
        memcpy(c->found[k], p[k], c->tensors[k].bytes);
      }
    check_bits(c, p);
  }
  release(c, blocks);

  fill(c, blocks, p);
  size_t bytes = (size_t)f->work_bytes(c->n);
  unsigned char *work = memory(bytes + GUARD);
  if (!bare) memset(work, 0xFF, bytes); /* NaN */
  memset(work + bytes, 0x5A, GUARD);
  if (f->call_with_work(c->n, p, work) != c->status) fail(c, "another status", 1);
  check_memory(c, blocks, 1);
  if (c->status == OK) check_bits(c, p);
  if (!all_are(work + bytes, GUARD, 0x5A)) fail(c, "memory beside work was written", 0);
  free(work);
  if (bytes) {
    release(c, blocks);
    fill(c, blocks, p);
    if (f->call_with_work(c->n, p, NULL) != MEMORY) fail(c, "no work is not told", 0);
    check_memory(c, blocks, 0);
  }
  release(c, blocks);
}

static void check_error(const struct one_case *c, int place, void *pointer, int64_t n,
                        int32_t status) {
  void *blocks[MOST], *p[MOST];
  fill(c, blocks, p);
  if (place >= 0) p[place] = pointer;
  int32_t found = c->function->call(n, p);
  if (found != status) {
    fprintf(stderr, "status %d, expected %d\n", found, status);
    fail(c, "an error is not told", place);
  }
  check_memory(c, blocks, 0);
  release(c, blocks);
}

/* Pointers must not lie in arrays of the call, which are made anew: these are alive. */
static void check_errors(const struct one_case *c) {
  const struct function *f = c->function;
  unsigned char *other = memory(4096);
  for (int k = 0; k < count(c); k++) {
    check_error(c, k, NULL, c->n, POINTER);
    if (c->tensors[k].element > 1)
      check_error(c, k, other + c->tensors[k].element - 1, c->n, POINTER);
  }
  free(other);
  if (f->samples) {
    check_error(c, -1, NULL, 0, SAMPLES);
    check_error(c, -1, NULL, -1, SAMPLES);
    check_error(c, -1, NULL, INT64_MIN, SAMPLES);
    check_error(c, -1, NULL, INT64_MAX, SAMPLES);
  }
  for (int k = f->inputs; k < count(c); k++)
    for (int i = 0; i < count(c); i++) {
      if (i == k) continue;
      void *blocks[MOST], *p[MOST];
      fill(c, blocks, p);
      size_t ends[2] = {0, c->tensors[i].bytes - c->tensors[k].element};
      for (int e = 0; e < 2; e++) {
        if (c->tensors[i].bytes < c->tensors[k].element) continue;
        if (ends[e] % c->tensors[k].element) continue;
        void *q[MOST];
        memcpy(q, p, sizeof q);
        q[k] = (unsigned char *)p[i] + ends[e];
        if (f->call(c->n, q) != OVERLAP) fail(c, "an overlap is not told", k);
        check_memory(c, blocks, 0);
      }
      release(c, blocks);
    }
}

/* Where a call would take more memory than there is. Its arrays are never touched. */
static int check_little_memory(const struct one_case *c) {
  const int64_t n = 2000000;
  const struct function *f = c->function;
  if (!f->samples || f->work_bytes(n) < 2 * MOST_MEMORY) return 0;
  void *p[MOST];
  for (int k = 0; k < count(c); k++)
    p[k] = (void *)(uintptr_t)(((uint64_t)1 << 44) + ((uint64_t)k << 41));
  int32_t status = f->call(n, p);
  if (status != MEMORY) fail(c, "too little memory is not told", status);
  return 1;
}

struct every {
  struct one_case *cases;
  int count;
};

static void *on_a_thread(void *given) {
  const struct every *all = given;
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < all->count; i++) call(&all->cases[i], 0);
  return NULL;
}

static void read_case(FILE *file, const char *name, struct one_case *c) {
  c->function = NULL;
  for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++)
    if (!strcmp(FUNCTIONS[i].name, name)) c->function = &FUNCTIONS[i];
  if (!c->function || fscanf(file, "%" SCNd64 " %" SCNd32, &c->n, &c->status) != 2) exit(3);
  for (int k = 0; k < count(c); k++) {
    struct tensor *t = &c->tensors[k];
    char path[1000];
    if (fscanf(file, " %c%zu %zu %999s", &t->kind, &t->element, &t->bytes, path) != 4) exit(4);
    t->data = memory(t->bytes);
    FILE *array = fopen(path, "rb");
    if (!array || fread(t->data, 1, t->bytes, array) != t->bytes) exit(5);
    fclose(array);
  }
}

int main(int argc, char **argv) {
  static struct one_case cases[200];
  struct every all = {cases, 0};
  char name[100];
  FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
  if (!file) return 6;
  while (fscanf(file, "%99s", name) == 1) {
    if (all.count == 200) return 7;
    read_case(file, name, &cases[all.count++]);
  }
  fclose(file);
  bare = argc > 2 && !strcmp(argv[2], "bare");

  if (argc > 2 && !strcmp(argv[2], "memory")) {
    const struct rlimit limit = {MOST_MEMORY, MOST_MEMORY};
    if (setrlimit(RLIMIT_AS, &limit)) return 8;
    int tried = 0;
    for (int i = 0; i < all.count; i++) tried += check_little_memory(&cases[i]);
    printf("%d cases\n", tried);
  } else {
    for (int i = 0; i < all.count; i++) {
      call(&cases[i], 1);
      if (cases[i].status == OK) check_errors(&cases[i]);
    }
    pthread_t threads[THREADS];
    for (int k = 0; k < THREADS; k++)
      if (pthread_create(&threads[k], NULL, on_a_thread, &all)) return 9;
    for (int k = 0; k < THREADS; k++) pthread_join(threads[k], NULL);
    printf("%d cases\n", all.count);
  }
  for (int i = 0; i < all.count; i++)
    for (int k = 0; k < count(&cases[i]); k++) {
      free(cases[i].tensors[k].data);
      free(cases[i].found[k]);
    }
  return 0;
}
