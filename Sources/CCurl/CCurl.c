#include "CCurl.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

struct todoku_curl_table todoku_curl;

static const char *failure;

static void load(void) {
  void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    failure = dlerror();
    if (failure) failure = strdup(failure);  // dlerror gives a buffer of the thread
    if (!failure) failure = "libcurl.so.4 cannot be loaded";
    return;
  }
#define TODOKU_CURL_FILL(name) \
  todoku_curl.name = (__typeof__(todoku_curl.name))dlsym(library, "curl_" #name); \
  if (!todoku_curl.name) { \
    failure = "libcurl.so.4 has no curl_" #name; \
    return; \
  }
  TODOKU_CURL_FUNCTIONS(TODOKU_CURL_FILL)
  if (todoku_curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) failure = "curl_global_init failed";
}

const char *todoku_curl_load(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return failure;
}
