#include "CCrypto.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

struct todoku_crypto_table todoku_crypto;

static const char *failure;

static void load(void) {
  void *library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    failure = dlerror();
    if (failure) failure = strdup(failure);  // dlerror gives a buffer of the thread
    if (!failure) failure = "libcrypto.so.3 cannot be loaded";
    return;
  }
#define TODOKU_CRYPTO_FILL(name) \
  todoku_crypto.name = (__typeof__(todoku_crypto.name))dlsym(library, #name); \
  if (!todoku_crypto.name) { \
    failure = "libcrypto.so.3 has no " #name; \
    return; \
  }
  TODOKU_CRYPTO_FUNCTIONS(TODOKU_CRYPTO_FILL)
}

const char *todoku_crypto_load(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return failure;
}
