#include "CCoding.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

// zlib 1.2 and 1.3: the interface of libz.so.1 has been the same since 1.2.0.
struct z_state {
  const uint8_t *next_in;
  unsigned int avail_in;
  unsigned long total_in;
  uint8_t *next_out;
  unsigned int avail_out;
  unsigned long total_out;
  const char *message;
  void *state, *allocate, *release, *opaque;
  int data_type;
  unsigned long adler, reserved;
};
enum { z_ok = 0, z_stream_end = 1, z_data_error = -3, z_mem_error = -4, z_buf_error = -5 };

// libbrotlidec.so.1: BrotliDecoderResult.
enum { brotli_error = 0, brotli_success = 1, brotli_needs_input = 2, brotli_needs_output = 3 };

// libzstd.so.1.
struct zstd_in { const void *bytes; size_t size, position; };
struct zstd_out { void *bytes; size_t size, position; };
enum { zstd_window_log_max = 100 };  // ZSTD_d_windowLogMax

#if __has_include(<zlib.h>)
#include <zlib.h>
_Static_assert(sizeof(struct z_state) == sizeof(z_stream) && offsetof(struct z_state, avail_out) == offsetof(z_stream, avail_out) &&
                   offsetof(struct z_state, state) == offsetof(z_stream, state) && offsetof(struct z_state, adler) == offsetof(z_stream, adler),
               "z_stream");
_Static_assert(z_stream_end == Z_STREAM_END && z_data_error == Z_DATA_ERROR && z_mem_error == Z_MEM_ERROR && z_buf_error == Z_BUF_ERROR, "zlib");
#endif
#if __has_include(<brotli/decode.h>)
#include <brotli/decode.h>
_Static_assert((int)brotli_success == (int)BROTLI_DECODER_RESULT_SUCCESS && (int)brotli_needs_input == (int)BROTLI_DECODER_RESULT_NEEDS_MORE_INPUT &&
                   (int)brotli_needs_output == (int)BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT,
               "brotli");
#endif
#if __has_include(<zstd.h>)
#include <zstd.h>
_Static_assert(sizeof(struct zstd_in) == sizeof(ZSTD_inBuffer) && offsetof(struct zstd_in, position) == offsetof(ZSTD_inBuffer, pos) &&
                   sizeof(struct zstd_out) == sizeof(ZSTD_outBuffer) && (int)zstd_window_log_max == (int)ZSTD_d_windowLogMax,
               "zstd");
#endif

static struct {
  int (*init)(struct z_state *, int bits, const char *version, int size);
  int (*run)(struct z_state *, int flush);
  int (*reset)(struct z_state *);
  int (*end)(struct z_state *);
} zlib;
static struct {
  void *(*make)(void *allocate, void *release, void *opaque);
  void (*free)(void *);
  int (*run)(void *, size_t *left, const uint8_t **input, size_t *room, uint8_t **output, size_t *total);
} brotli;
static struct {
  void *(*make)(void);
  size_t (*free)(void *);
  size_t (*set)(void *, int parameter, int value);
  size_t (*run)(void *, struct zstd_out *, struct zstd_in *);
  unsigned (*is_error)(size_t);
} zstd;

static bool has_zlib, has_brotli, has_zstd;
#define FIND(field, name) ((field) = (__typeof__(field))dlsym(library, name))

static void load_zlib(void) {
  void *library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
  has_zlib = library && FIND(zlib.init, "inflateInit2_") && FIND(zlib.run, "inflate") && FIND(zlib.reset, "inflateReset") &&
             FIND(zlib.end, "inflateEnd");
}
static void load_brotli(void) {
  void *library = dlopen("libbrotlidec.so.1", RTLD_NOW | RTLD_LOCAL);
  has_brotli = library && FIND(brotli.make, "BrotliDecoderCreateInstance") && FIND(brotli.free, "BrotliDecoderDestroyInstance") &&
               FIND(brotli.run, "BrotliDecoderDecompressStream");
}
static void load_zstd(void) {
  void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
  has_zstd = library && FIND(zstd.make, "ZSTD_createDCtx") && FIND(zstd.free, "ZSTD_freeDCtx") && FIND(zstd.set, "ZSTD_DCtx_setParameter") &&
             FIND(zstd.run, "ZSTD_decompressStream") && FIND(zstd.is_error, "ZSTD_isError");
}

struct todoku_decoder {
  enum todoku_coding coding;
  struct z_state z;
  bool has_z, has_ended;
  void *other;
};

static bool begin_zlib(struct todoku_decoder *decoder, int bits) {
  decoder->has_z = zlib.init(&decoder->z, bits, "1", (int)sizeof decoder->z) == z_ok;
  return decoder->has_z;
}

struct todoku_decoder *todoku_decoder_make(enum todoku_coding coding) {
  static pthread_once_t zlib_once = PTHREAD_ONCE_INIT, brotli_once = PTHREAD_ONCE_INIT, zstd_once = PTHREAD_ONCE_INIT;
  struct todoku_decoder *decoder = calloc(1, sizeof *decoder);
  if (!decoder) return NULL;
  decoder->coding = coding;
  bool made = false;
  switch (coding) {
  case TODOKU_CODING_GZIP:
  case TODOKU_CODING_DEFLATE:
    pthread_once(&zlib_once, load_zlib);
    // Whether "deflate" has zlib's frame is told by its first byte.
    made = has_zlib && (coding == TODOKU_CODING_DEFLATE || begin_zlib(decoder, 16 + 15));
    break;
  case TODOKU_CODING_BROTLI:
    pthread_once(&brotli_once, load_brotli);
    made = has_brotli && (decoder->other = brotli.make(NULL, NULL, NULL));
    break;
  case TODOKU_CODING_ZSTD:
    pthread_once(&zstd_once, load_zstd);
    // RFC 9659: no window over 8 MiB in HTTP.
    made = has_zstd && (decoder->other = zstd.make()) && !zstd.is_error(zstd.set(decoder->other, zstd_window_log_max, 23));
    break;
  }
  if (made) return decoder;
  todoku_decoder_free(decoder);
  return NULL;
}

void todoku_decoder_free(struct todoku_decoder *decoder) {
  if (decoder->has_z) zlib.end(&decoder->z);
  if (decoder->other && decoder->coding == TODOKU_CODING_BROTLI) brotli.free(decoder->other);
  if (decoder->other && decoder->coding == TODOKU_CODING_ZSTD) zstd.free(decoder->other);
  free(decoder);
}

static enum todoku_decoded run_zlib(
    struct todoku_decoder *decoder, const uint8_t *input, size_t count, size_t *used, uint8_t *output, size_t room, size_t *made) {
  if (!decoder->has_z) {
    if (!count) return TODOKU_DECODED_MORE;
    // RFC 9110 §8.4.1.2 means zlib's frame (RFC 1950); some send the bare stream. CM is 8 and CINFO at most 7 in the former.
    bool is_framed = (input[0] & 0x0f) == 8 && input[0] >> 4 <= 7;
    if (!begin_zlib(decoder, is_framed ? 15 : -15)) return TODOKU_DECODED_NO_MEMORY;
  }
  if (decoder->has_ended) {
    if (decoder->coding != TODOKU_CODING_GZIP || zlib.reset(&decoder->z) != z_ok) return TODOKU_DECODED_BROKEN;
    decoder->has_ended = false;
  }
  unsigned int limit = 1u << 30;
  decoder->z.next_in = input;
  decoder->z.avail_in = count < limit ? (unsigned int)count : limit;
  decoder->z.next_out = output;
  decoder->z.avail_out = room < limit ? (unsigned int)room : limit;
  int code = zlib.run(&decoder->z, 0);
  *used = (size_t)(decoder->z.next_in - input);
  *made = (size_t)(decoder->z.next_out - output);
  switch (code) {
  case z_stream_end: decoder->has_ended = true; return TODOKU_DECODED_END;
  case z_ok:
  case z_buf_error: return TODOKU_DECODED_MORE;
  case z_mem_error: return TODOKU_DECODED_NO_MEMORY;
  default: return TODOKU_DECODED_BROKEN;
  }
}

static enum todoku_decoded run_brotli(
    struct todoku_decoder *decoder, const uint8_t *input, size_t count, size_t *used, uint8_t *output, size_t room, size_t *made) {
  if (decoder->has_ended) return TODOKU_DECODED_BROKEN;
  size_t left = count, space = room;
  int code = brotli.run(decoder->other, &left, &input, &space, &output, NULL);
  *used = count - left;
  *made = room - space;
  decoder->has_ended = code == brotli_success;
  return code == brotli_error ? TODOKU_DECODED_BROKEN : code == brotli_success ? TODOKU_DECODED_END : TODOKU_DECODED_MORE;
}

static enum todoku_decoded run_zstd(
    struct todoku_decoder *decoder, const uint8_t *input, size_t count, size_t *used, uint8_t *output, size_t room, size_t *made) {
  struct zstd_in in = {input, count, 0};
  struct zstd_out out = {output, room, 0};
  size_t code = zstd.run(decoder->other, &out, &in);
  *used = in.position;
  *made = out.position;
  if (zstd.is_error(code)) return TODOKU_DECODED_BROKEN;
  return code == 0 ? TODOKU_DECODED_END : TODOKU_DECODED_MORE;
}

enum todoku_decoded todoku_decoder_run(
    struct todoku_decoder *decoder, const uint8_t *input, size_t count, size_t *used, uint8_t *output, size_t room, size_t *made) {
  *used = *made = 0;
  switch (decoder->coding) {
  case TODOKU_CODING_BROTLI: return run_brotli(decoder, input, count, used, output, room, made);
  case TODOKU_CODING_ZSTD: return run_zstd(decoder, input, count, used, output, room, made);
  default: return run_zlib(decoder, input, count, used, output, room, made);
  }
}
