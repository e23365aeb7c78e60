// Measures the steps of a service's first thread, in which it answers no call: from the return of poll(2) to the next call of poll(2).
//
// Preloaded (LD_PRELOAD) by Benchmarks/steps. The longest step is in the file that TODOKU_STEPS names, which the benchmark maps too.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// Nanoseconds. The benchmark sets all of them to 0 before a call.
struct steps {
  uint64_t longest;    // the longest step, by the clock
  uint64_t processor;  // the longest step, by the thread's processor time
  uint64_t count;
};

static struct steps *steps;
static int (*real)(struct pollfd *, nfds_t, int);
static uint64_t returned, returned_processor;

static uint64_t now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

__attribute__((constructor)) static void begin(void) {
  real = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
  const char *path = getenv("TODOKU_STEPS");
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(0, sizeof *steps, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) steps = mapped;
}

int poll(struct pollfd *entries, nfds_t count, int timeout) {
  // A look at the table of mounts belongs to a step.
  bool is_look = count == 1 && entries->events == POLLPRI;
  if (!steps || is_look || gettid() != getpid()) return real(entries, count, timeout);
  if (returned) {
    uint64_t lasted = now(CLOCK_MONOTONIC) - returned;
    uint64_t processor = now(CLOCK_THREAD_CPUTIME_ID) - returned_processor;
    if (lasted > steps->longest) steps->longest = lasted;
    if (processor > steps->processor) steps->processor = processor;
    steps->count++;
  }
  int found = real(entries, count, timeout);
  returned = now(CLOCK_MONOTONIC);
  returned_processor = now(CLOCK_THREAD_CPUTIME_ID);
  return found;
}
