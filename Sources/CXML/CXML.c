#include "CXML.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

struct todoku_xml_table todoku_xml;

static const char *failure;

static void load(void) {
  void *library = dlopen("libexpat.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    failure = dlerror();
    if (failure) failure = strdup(failure);  // dlerror gives a buffer of the thread
    if (!failure) failure = "libexpat.so.1 cannot be loaded";
    return;
  }
#define TODOKU_XML_FILL(name) \
  todoku_xml.name = (__typeof__(todoku_xml.name))dlsym(library, #name); \
  if (!todoku_xml.name) { \
    failure = "libexpat.so.1 has no " #name; \
    return; \
  }
  TODOKU_XML_FUNCTIONS(TODOKU_XML_FILL)
}

const char *todoku_xml_load(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return failure;
}
