#include "CXML.h"
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
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

// The bytes that the parser of this thread may still take. expat hands no context to the functions of its memory.
static _Thread_local ptrdiff_t room;

static void *change(void *block, size_t size) {
  ptrdiff_t held = (ptrdiff_t)malloc_usable_size(block);  // 0 for NULL
  if (size > PTRDIFF_MAX || (ptrdiff_t)size - held > room) return NULL;
  void *changed = realloc(block, size);
  if (changed) room -= (ptrdiff_t)malloc_usable_size(changed) - held;
  return changed;
}

static void *take(size_t size) { return change(NULL, size); }

static void give_back(void *block) {
  room += (ptrdiff_t)malloc_usable_size(block);
  free(block);
}

XML_Parser todoku_xml_create(size_t most) {
  static const XML_Memory_Handling_Suite memory = {take, change, give_back};
  room = most > PTRDIFF_MAX ? PTRDIFF_MAX : (ptrdiff_t)most;
  return todoku_xml.XML_ParserCreate_MM(NULL, &memory, "\n");
}
