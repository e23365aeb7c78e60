// libcrypto's message digests by a table of function pointers that dlopen(3) fills on first use.
#pragma once
#include <openssl/evp.h>
#include <stddef.h>

#define TODOKU_CRYPTO_FUNCTIONS(X) \
  X(EVP_MD_CTX_new) X(EVP_MD_CTX_free) X(EVP_get_digestbyname) X(EVP_DigestInit_ex) X(EVP_DigestUpdate) X(EVP_DigestFinal_ex)

#define TODOKU_CRYPTO_POINTER(name) __typeof__(&name) name;
struct todoku_crypto_table { TODOKU_CRYPTO_FUNCTIONS(TODOKU_CRYPTO_POINTER) };
#undef TODOKU_CRYPTO_POINTER

/// Written by todoku_crypto_load only.
extern struct todoku_crypto_table todoku_crypto;

/// Loads libcrypto.so.3, once; later calls give the first call's answer. From any thread. NULL, or what dlopen(3) said, for ever.
const char *todoku_crypto_load(void);

__attribute__((swift_name("md_ctx_new()"))) static inline EVP_MD_CTX *todoku_md_ctx_new(void) { return todoku_crypto.EVP_MD_CTX_new(); }
__attribute__((swift_name("md_ctx_free(_:)"))) static inline void todoku_md_ctx_free(EVP_MD_CTX *context) {
  todoku_crypto.EVP_MD_CTX_free(context);
}
__attribute__((swift_name("get_digestbyname(_:)"))) static inline const EVP_MD *todoku_get_digestbyname(const char *name) {
  return todoku_crypto.EVP_get_digestbyname(name);
}
__attribute__((swift_name("digest_init(_:_:)"))) static inline int todoku_digest_init(EVP_MD_CTX *context, const EVP_MD *method) {
  return todoku_crypto.EVP_DigestInit_ex(context, method, NULL);
}
__attribute__((swift_name("digest_update(_:_:_:)"))) static inline int todoku_digest_update(EVP_MD_CTX *context, const void *bytes, size_t count) {
  return todoku_crypto.EVP_DigestUpdate(context, bytes, count);
}
__attribute__((swift_name("digest_final(_:_:)"))) static inline int todoku_digest_final(EVP_MD_CTX *context, unsigned char *digest) {
  return todoku_crypto.EVP_DigestFinal_ex(context, digest, NULL);
}
