#include "CJSON.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

struct todoku_json_table todoku_json;

static const char *failure;

static void load(void) {
  void *library = dlopen("libjansson.so.4", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    failure = dlerror();
    if (failure) failure = strdup(failure);  // dlerror gives a buffer of the thread
    if (!failure) failure = "libjansson.so.4 cannot be loaded";
    return;
  }
#define TODOKU_JSON_FILL(name) \
  todoku_json.name = (__typeof__(todoku_json.name))dlsym(library, #name); \
  if (!todoku_json.name) { \
    failure = "libjansson.so.4 has no " #name; \
    return; \
  }
  TODOKU_JSON_FUNCTIONS(TODOKU_JSON_FILL)
}

const char *todoku_json_load(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return failure;
}
