#include "CCoding.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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
enum { zstd_window_too_large = 16 };  // ZSTD_error_frameParameter_windowTooLarge

// liblzma.so.5.
struct lzma_state {
  const uint8_t *next_in;
  size_t avail_in;
  uint64_t total_in;
  uint8_t *next_out;
  size_t avail_out;
  uint64_t total_out;
  const void *allocator;
  void *state, *reserved_pointers[4];
  uint64_t reserved_numbers[2];
  size_t reserved_sizes[2];
  int reserved_enums[2];
};
enum { lzma_ok = 0, lzma_stream_end = 1, lzma_mem_error = 5, lzma_memlimit_error = 6, lzma_buf_error = 10 };

// libbz2.so.1.0.
struct bz_state {
  const uint8_t *next_in;
  unsigned int avail_in, total_in[2];
  uint8_t *next_out;
  unsigned int avail_out, total_out[2];
  void *state, *allocate, *release, *opaque;
};
enum { bz_ok = 0, bz_stream_end = 4, bz_mem_error = -3 };

#if __has_include(<zlib.h>)
#include <zlib.h>
_Static_assert(sizeof(struct z_state) == sizeof(z_stream) && offsetof(struct z_state, avail_out) == offsetof(z_stream, avail_out) &&
                   offsetof(struct z_state, state) == offsetof(z_stream, state) && offsetof(struct z_state, adler) == offsetof(z_stream, adler),
               "z_stream");
_Static_assert(z_stream_end == Z_STREAM_END && z_data_error == Z_DATA_ERROR && z_mem_error == Z_MEM_ERROR && z_buf_error == Z_BUF_ERROR, "zlib");
#endif
#if __has_include(<libdeflate.h>)
#include <libdeflate.h>
_Static_assert(__builtin_types_compatible_p(__typeof__(libdeflate_crc32), uint32_t(uint32_t, const void *, size_t)), "libdeflate");
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
#if __has_include(<zstd_errors.h>)
#include <zstd_errors.h>
_Static_assert((int)zstd_window_too_large == (int)ZSTD_error_frameParameter_windowTooLarge, "zstd");
#endif
#if __has_include(<lzma.h>)
#include <lzma.h>
_Static_assert(sizeof(struct lzma_state) == sizeof(lzma_stream) && offsetof(struct lzma_state, state) == offsetof(lzma_stream, internal) &&
                   (int)lzma_memlimit_error == (int)LZMA_MEMLIMIT_ERROR && (int)lzma_mem_error == (int)LZMA_MEM_ERROR &&
                   (int)lzma_buf_error == (int)LZMA_BUF_ERROR,
               "lzma");
#endif
#if __has_include(<bzlib.h>)
#include <bzlib.h>
_Static_assert(sizeof(struct bz_state) == sizeof(bz_stream) && offsetof(struct bz_state, avail_out) == offsetof(bz_stream, avail_out) &&
                   offsetof(struct bz_state, state) == offsetof(bz_stream, state) && (int)bz_stream_end == (int)BZ_STREAM_END &&
                   (int)bz_mem_error == (int)BZ_MEM_ERROR,
               "bzip2");
#endif

static struct {
  int (*init)(struct z_state *, int bits, const char *version, int size);
  int (*run)(struct z_state *, int flush);
  int (*reset)(struct z_state *);
  int (*end)(struct z_state *);
  int (*validate)(struct z_state *, int check);
} zlib;
static struct {
  uint32_t (*crc)(uint32_t before, const void *bytes, size_t count);
} libdeflate;
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
  int (*code)(size_t);
} zstd;
static struct {
  int (*init)(struct lzma_state *, uint64_t most_memory, uint32_t flags);
  int (*run)(struct lzma_state *, int action);
  void (*end)(struct lzma_state *);
} lzma;
static struct {
  int (*init)(struct bz_state *, int verbosity, int small);
  int (*run)(struct bz_state *);
  int (*end)(struct bz_state *);
} bzip2;

static bool has_zlib, has_libdeflate, has_brotli, has_zstd, has_lzma, has_bzip2;
#define FIND(field, name) ((field) = (__typeof__(field))dlsym(library, name))

static void load_zlib(void) {
  void *library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
  has_zlib = library && FIND(zlib.init, "inflateInit2_") && FIND(zlib.run, "inflate") && FIND(zlib.reset, "inflateReset") &&
             FIND(zlib.end, "inflateEnd");
  if (!has_zlib || !FIND(zlib.validate, "inflateValidate")) return;
  library = dlopen("libdeflate.so.0", RTLD_NOW | RTLD_LOCAL);
  has_libdeflate = library && FIND(libdeflate.crc, "libdeflate_crc32");
}
static void load_brotli(void) {
  void *library = dlopen("libbrotlidec.so.1", RTLD_NOW | RTLD_LOCAL);
  has_brotli = library && FIND(brotli.make, "BrotliDecoderCreateInstance") && FIND(brotli.free, "BrotliDecoderDestroyInstance") &&
               FIND(brotli.run, "BrotliDecoderDecompressStream");
}
static void load_zstd(void) {
  void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
  has_zstd = library && FIND(zstd.make, "ZSTD_createDCtx") && FIND(zstd.free, "ZSTD_freeDCtx") && FIND(zstd.set, "ZSTD_DCtx_setParameter") &&
             FIND(zstd.run, "ZSTD_decompressStream") && FIND(zstd.is_error, "ZSTD_isError") &&
             FIND(zstd.code, "ZSTD_getErrorCode");
}
static void load_lzma(void) {
  void *library = dlopen("liblzma.so.5", RTLD_NOW | RTLD_LOCAL);
  has_lzma = library && FIND(lzma.init, "lzma_stream_decoder") && FIND(lzma.run, "lzma_code") && FIND(lzma.end, "lzma_end");
}
static void load_bzip2(void) {
  void *library = dlopen("libbz2.so.1.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) library = dlopen("libbz2.so.1", RTLD_NOW | RTLD_LOCAL);  // the name outside of Debian
  has_bzip2 = library && FIND(bzip2.init, "BZ2_bzDecompressInit") && FIND(bzip2.run, "BZ2_bzDecompress") &&
              FIND(bzip2.end, "BZ2_bzDecompressEnd");
}

/// What was read and made of a member of a gzip file (RFC 1952), if libdeflate computes its CRC.
struct gzip_member {
  bool is_checked_here;
  uint32_t crc, size;  // of the decoded bytes; the size modulo 2^32
  uint8_t tail[8];     // the last bytes read: at the end of a member, its CRC32 and ISIZE
};

struct todoku_decoder {
  enum todoku_coding coding;
  struct z_state z;
  bool has_z, has_ended;
  struct gzip_member member;
  void *other;
  struct lzma_state xz;
  uint64_t most_memory;
  struct bz_state bz;
  bool has_bz;
  bool tells_width;
};

static bool begin_bzip2(struct todoku_decoder *decoder) {
  decoder->has_bz = bzip2.init(&decoder->bz, 0, 0) == bz_ok;
  return decoder->has_bz;
}

static bool begin_zlib(struct todoku_decoder *decoder, int bits) {
  decoder->has_z = zlib.init(&decoder->z, bits, "1", (int)sizeof decoder->z) == z_ok;
  return decoder->has_z;
}

/// zlib needs two thirds as long for the CRC as for the decoding, libdeflate a quarter of that. zlib can leave its CRC out
/// (inflateValidate), but have nobody else compute it. It then ignores the CRC of a header (FHCRC), too.
static bool begin_gzip(struct todoku_decoder *decoder) {
  if (!begin_zlib(decoder, 16 + 15)) return false;
  decoder->member.is_checked_here = has_libdeflate && zlib.validate(&decoder->z, 0) == z_ok;
  return true;
}

static uint32_t little_endian(const uint8_t *bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/// Whether the member is right, as far as it was read. `has_ended`: up to its end.
static bool note_member(
    struct gzip_member *member, const uint8_t *input, size_t used, const uint8_t *output, size_t made, bool has_ended) {
  if (!member->is_checked_here) return true;
  size_t last = used < sizeof member->tail ? used : sizeof member->tail;
  memmove(member->tail, member->tail + last, sizeof member->tail - last);
  memcpy(member->tail + sizeof member->tail - last, input + used - last, last);
  member->crc = libdeflate.crc(member->crc, output, made);
  member->size += (uint32_t)made;
  if (!has_ended) return true;
  bool is_right = little_endian(member->tail) == member->crc && little_endian(member->tail + 4) == member->size;
  member->crc = member->size = 0;
  return is_right;
}

struct todoku_decoder *todoku_decoder_make(enum todoku_coding coding) {
  // RFC 9659: no window over 8 MiB in HTTP.
  struct todoku_decoder *decoder = todoku_decoder_make_wide(coding, 23);
  if (decoder) decoder->tells_width = false;
  return decoder;
}

struct todoku_decoder *todoku_decoder_make_wide(enum todoku_coding coding, int window_log) {
  static pthread_once_t zlib_once = PTHREAD_ONCE_INIT, brotli_once = PTHREAD_ONCE_INIT, zstd_once = PTHREAD_ONCE_INIT;
  static pthread_once_t lzma_once = PTHREAD_ONCE_INIT, bzip2_once = PTHREAD_ONCE_INIT;
  struct todoku_decoder *decoder = calloc(1, sizeof *decoder);
  if (!decoder) return NULL;
  decoder->coding = coding;
  decoder->tells_width = true;
  bool made = false;
  switch (coding) {
  case TODOKU_CODING_GZIP:
  case TODOKU_CODING_DEFLATE:
    pthread_once(&zlib_once, load_zlib);
    // Whether "deflate" has zlib's frame is told by its first byte.
    made = has_zlib && (coding == TODOKU_CODING_DEFLATE || begin_gzip(decoder));
    break;
  case TODOKU_CODING_BROTLI:
    pthread_once(&brotli_once, load_brotli);
    made = has_brotli && (decoder->other = brotli.make(NULL, NULL, NULL));
    break;
  case TODOKU_CODING_ZSTD:
    pthread_once(&zstd_once, load_zstd);
    made = has_zstd && (decoder->other = zstd.make()) && !zstd.is_error(zstd.set(decoder->other, zstd_window_log_max, window_log));
    break;
  case TODOKU_CODING_XZ:
    pthread_once(&lzma_once, load_lzma);
    // A decoder needs less than 1 MiB beside the window.
    decoder->most_memory = ((uint64_t)1 << window_log) + (1 << 20);
    made = has_lzma && lzma.init(&decoder->xz, decoder->most_memory, 0) == lzma_ok;
    break;
  case TODOKU_CODING_BZIP2:
    pthread_once(&bzip2_once, load_bzip2);
    made = has_bzip2 && begin_bzip2(decoder);
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
  if (decoder->xz.state) lzma.end(&decoder->xz);
  if (decoder->has_bz) bzip2.end(&decoder->bz);
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
  if (!note_member(&decoder->member, input, *used, output, *made, code == z_stream_end)) return TODOKU_DECODED_BROKEN;
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
  if (zstd.is_error(code)) {
    return decoder->tells_width && zstd.code(code) == zstd_window_too_large ? TODOKU_DECODED_WIDE : TODOKU_DECODED_BROKEN;
  }
  return code == 0 ? TODOKU_DECODED_END : TODOKU_DECODED_MORE;
}

static enum todoku_decoded run_xz(
    struct todoku_decoder *decoder, const uint8_t *input, size_t count, size_t *used, uint8_t *output, size_t room, size_t *made) {
  if (decoder->has_ended) {
    if (lzma.init(&decoder->xz, decoder->most_memory, 0) != lzma_ok) return TODOKU_DECODED_NO_MEMORY;
    decoder->has_ended = false;
  }
  decoder->xz.next_in = input;
  decoder->xz.avail_in = count;
  decoder->xz.next_out = output;
  decoder->xz.avail_out = room;
  int code = lzma.run(&decoder->xz, 0);
  *used = count - decoder->xz.avail_in;
  *made = room - decoder->xz.avail_out;
  switch (code) {
  case lzma_stream_end: decoder->has_ended = true; return TODOKU_DECODED_END;
  case lzma_ok:
  case lzma_buf_error: return TODOKU_DECODED_MORE;
  case lzma_mem_error: return TODOKU_DECODED_NO_MEMORY;
  case lzma_memlimit_error: return TODOKU_DECODED_WIDE;
  default: return TODOKU_DECODED_BROKEN;
  }
}

static enum todoku_decoded run_bzip2(
    struct todoku_decoder *decoder, const uint8_t *input, size_t count, size_t *used, uint8_t *output, size_t room, size_t *made) {
  if (decoder->has_ended) {
    bzip2.end(&decoder->bz);
    if (!begin_bzip2(decoder)) return TODOKU_DECODED_NO_MEMORY;
    decoder->has_ended = false;
  }
  unsigned int limit = 1u << 30;
  decoder->bz.next_in = input;
  decoder->bz.avail_in = count < limit ? (unsigned int)count : limit;
  decoder->bz.next_out = output;
  decoder->bz.avail_out = room < limit ? (unsigned int)room : limit;
  int code = bzip2.run(&decoder->bz);
  *used = (size_t)(decoder->bz.next_in - input);
  *made = (size_t)(decoder->bz.next_out - output);
  switch (code) {
  case bz_stream_end: decoder->has_ended = true; return TODOKU_DECODED_END;
  case bz_ok: return TODOKU_DECODED_MORE;
  case bz_mem_error: return TODOKU_DECODED_NO_MEMORY;
  default: return TODOKU_DECODED_BROKEN;
  }
}

enum todoku_decoded todoku_decoder_run(
    struct todoku_decoder *decoder, const uint8_t *input, size_t count, size_t *used, uint8_t *output, size_t room, size_t *made) {
  *used = *made = 0;
  switch (decoder->coding) {
  case TODOKU_CODING_BROTLI: return run_brotli(decoder, input, count, used, output, room, made);
  case TODOKU_CODING_ZSTD: return run_zstd(decoder, input, count, used, output, room, made);
  case TODOKU_CODING_XZ: return run_xz(decoder, input, count, used, output, room, made);
  case TODOKU_CODING_BZIP2: return run_bzip2(decoder, input, count, used, output, room, made);
  default: return run_zlib(decoder, input, count, used, output, room, made);
  }
}
