// libcanberra, as far as one sound is played with it: a table of functions, loaded on first use.
//
// Types and prototypes are declared here, so that a build needs no headers of it. Each declares the same as canberra.h: prototypes, whose
// use the LGPL 2.1 does not limit (section 5). A test compiles the table against the real header. Where that is included before this file,
// its own types stand back.
#pragma once
#include <stdint.h>

#ifndef foocanberrahfoo
typedef struct ca_context ca_context;
typedef struct ca_proplist ca_proplist;
typedef void (*ca_finish_callback_t)(ca_context *c, uint32_t id, int error_code, void *userdata);
#endif

// F(result, name, parameters…)
#define TODOKU_SOUND_FUNCTIONS(F) \
    F(int, ca_context_create, ca_context **c) \
    F(int, ca_context_destroy, ca_context *c) \
    F(int, ca_context_play_full, ca_context *c, uint32_t id, ca_proplist *p, ca_finish_callback_t cb, void *userdata) \
    F(int, ca_proplist_create, ca_proplist **p) \
    F(int, ca_proplist_destroy, ca_proplist *p) \
    F(int, ca_proplist_sets, ca_proplist *p, const char *key, const char *value)

/// Plays the sound `name` of the theme `freedesktop` to its end, or for so many seconds at most. Blocks, on any thread.
///
/// Returns 0; else libcanberra's error, or 1 where it is not installed.
int todoku_sound_play(const char *name, unsigned seconds);
