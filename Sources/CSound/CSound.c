#define _GNU_SOURCE
#include "CSound.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <time.h>

static struct {
#define TODOKU_SOUND_MEMBER(result, name, ...) result (*name)(__VA_ARGS__);
    TODOKU_SOUND_FUNCTIONS(TODOKU_SOUND_MEMBER)
} functions;
static int is_loaded;

static void load(void) {
    void *library = dlopen("libcanberra.so.0", RTLD_NOW | RTLD_LOCAL);  // never closed: it starts threads
    if (!library) return;
#define TODOKU_SOUND_LOAD(result, name, ...) \
    if (!(*(void **)&functions.name = dlsym(library, #name))) return;
    TODOKU_SOUND_FUNCTIONS(TODOKU_SOUND_LOAD)
    is_loaded = 1;
}

struct end {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int has_come;
};

// On a thread of libcanberra's.
static void finished(ca_context *context, uint32_t id, int error, void *data) {
    struct end *end = data;
    (void)context, (void)id, (void)error;
    pthread_mutex_lock(&end->mutex);
    end->has_come = 1;
    pthread_cond_signal(&end->changed);
    pthread_mutex_unlock(&end->mutex);
}

static void await(struct end *end, unsigned seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    pthread_mutex_lock(&end->mutex);
    while (!end->has_come && pthread_cond_clockwait(&end->changed, &end->mutex, CLOCK_MONOTONIC, &until) != ETIMEDOUT) {}
    pthread_mutex_unlock(&end->mutex);
}

int todoku_sound_play(const char *name, unsigned seconds) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (!is_loaded) return 1;
    ca_context *context = NULL;
    ca_proplist *properties = NULL;
    int error = functions.ca_context_create(&context);
    if (error) return error;
    error = functions.ca_proplist_create(&properties);
    if (!error) {
        struct end end = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
        functions.ca_proplist_sets(properties, "event.id", name);
        functions.ca_proplist_sets(properties, "media.role", "event");
        functions.ca_proplist_sets(properties, "application.name", "Todoku");
        functions.ca_proplist_sets(properties, "application.id", "org.todoku.Downloader1");
        error = functions.ca_context_play_full(context, 1, properties, finished, &end);
        if (!error) await(&end, seconds);
        functions.ca_proplist_destroy(properties);
        functions.ca_context_destroy(context);  // it calls `finished` for what still plays: `end` is there until then
    } else {
        functions.ca_context_destroy(context);
    }
    return error;
}
