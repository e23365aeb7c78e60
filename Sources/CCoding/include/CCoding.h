// Decodes gzip, deflate, br and zstd by zlib, libbrotlidec and libzstd. Each is loaded by dlopen(3) when it is first needed. libcurl
// depends on the three and could decode them, but it does not report a stream that ends early or has bytes behind it. Where libdeflate is
// there, it computes the CRC of gzip, because zlib is slower.
//
// Likewise xz and bzip2 by liblzma and libbz2, for archives. libarchive depends on the two and could decode them, but it does not bound the
// memory that a stream of xz asks for, nor the bytes that it unpacks at a time.
//
// Their prototypes are declared in CCoding.c, so that a build needs none of their headers; where a header is there, the compiler compares.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum todoku_coding {
  TODOKU_CODING_GZIP,
  TODOKU_CODING_DEFLATE,
  TODOKU_CODING_BROTLI,
  TODOKU_CODING_ZSTD,
  TODOKU_CODING_XZ,
  TODOKU_CODING_BZIP2,
};

enum todoku_decoded {
  TODOKU_DECODED_MORE,     // the input is used up, or the room is full: go on
  TODOKU_DECODED_END,      // the stream has ended; what is left of the input is behind it
  TODOKU_DECODED_BROKEN,   // not such a stream
  TODOKU_DECODED_NO_MEMORY,
  TODOKU_DECODED_WIDE,     // the stream needs a wider window than todoku_decoder_make_wide was given; of no other decoder
};

struct todoku_decoder;

/// NULL: the library cannot be loaded, or there is no memory. Of one thread at a time. End it by todoku_decoder_free.
struct todoku_decoder *todoku_decoder_make(enum todoku_coding coding);
/// The same, for an archive: a window of zstd or xz may have 2^`window_log` bytes (10 to 31).
struct todoku_decoder *todoku_decoder_make_wide(enum todoku_coding coding, int window_log);
void todoku_decoder_free(struct todoku_decoder *decoder);

/// Decodes into `room` bytes at `output`. Afterwards `*used` bytes of the input are done with, and `*made` bytes were written.
/// After TODOKU_DECODED_END a further call begins a further stream, for codings that allow one (gzip, zstd, xz, bzip2).
enum todoku_decoded todoku_decoder_run(
    struct todoku_decoder *decoder, const uint8_t *input, size_t count, size_t *used, uint8_t *output, size_t room, size_t *made);
