// libcrypto's message digests, Ed25519 signatures, and what RFC 8291 takes, by a table of function pointers that dlopen(3) fills on first
// use.
#pragma once
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stddef.h>

#define TODOKU_CRYPTO_FUNCTIONS(X) \
  X(EVP_MD_CTX_new) X(EVP_MD_CTX_free) X(EVP_get_digestbyname) X(EVP_DigestInit_ex) X(EVP_DigestUpdate) X(EVP_DigestFinal_ex) \
  X(HMAC) X(EVP_PKEY_Q_keygen) X(EVP_PKEY_get_octet_string_param) X(EVP_PKEY_get_bn_param) X(EVP_PKEY_free) X(BN_bn2binpad) \
  X(BN_clear_free) X(EVP_PKEY_CTX_new_from_name) X(EVP_PKEY_CTX_new) X(EVP_PKEY_CTX_free) X(EVP_PKEY_fromdata_init) \
  X(EVP_PKEY_fromdata) X(EVP_PKEY_derive_init) X(EVP_PKEY_derive_set_peer) X(EVP_PKEY_derive) X(EVP_CIPHER_CTX_new) \
  X(EVP_CIPHER_CTX_free) X(EVP_CIPHER_CTX_ctrl) X(EVP_aes_128_gcm) X(EVP_DecryptInit_ex) X(EVP_DecryptUpdate) X(EVP_DecryptFinal_ex) \
  X(EVP_PKEY_new_raw_public_key) X(EVP_PKEY_new_raw_private_key) X(EVP_PKEY_get_raw_public_key) X(EVP_DigestVerifyInit) \
  X(EVP_DigestVerify) X(EVP_DigestSignInit) X(EVP_DigestSign)

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

// Each needs todoku_crypto_load, and returns 1, or 0 if it failed. All buffers are the caller's.

/// A new key on the curve P-256: its secret number, big-endian, and its point, uncompressed.
int todoku_p256_generate(unsigned char secret[32], unsigned char point[65]);
/// The shared secret (ECDH) of a key and a peer's point. Fails for a point that is not on the curve.
int todoku_p256_agree(const unsigned char secret[32], const unsigned char point[65], const unsigned char peer[65], unsigned char shared[32]);
int todoku_hmac_sha256(const void *key, size_t key_count, const void *bytes, size_t count, unsigned char digest[32]);
/// AES-128-GCM. Fails unless the tag is right; then `plain`, of `count` bytes, must not be used.
int todoku_aes_128_gcm_open(
    const unsigned char key[16], const unsigned char nonce[12], const void *bytes, size_t count, const unsigned char tag[16],
    unsigned char *plain);

/// A key of 32 raw bytes (RFC 8032 §5.1.5); NULL: it has another length, or there is no memory. Free it by ed25519_free.
__attribute__((swift_name("ed25519_public(_:_:)"))) static inline EVP_PKEY *todoku_ed25519_public(const void *bytes, size_t count) {
  return todoku_crypto.EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, bytes, count);
}
__attribute__((swift_name("ed25519_private(_:_:)"))) static inline EVP_PKEY *todoku_ed25519_private(const void *bytes, size_t count) {
  return todoku_crypto.EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, bytes, count);
}
/// Writes the 32 bytes of the public key. 1: done.
__attribute__((swift_name("ed25519_get_public(_:_:)"))) static inline int todoku_ed25519_get_public(const EVP_PKEY *key, unsigned char *bytes) {
  size_t count = 32;
  return todoku_crypto.EVP_PKEY_get_raw_public_key(key, bytes, &count);
}
__attribute__((swift_name("ed25519_free(_:)"))) static inline void todoku_ed25519_free(EVP_PKEY *key) { todoku_crypto.EVP_PKEY_free(key); }

/// Whether `signature` is that of `bytes` by the owner of `key` (EVP_DigestVerify(3)): 1 if so, any other number if not. `context` is new.
__attribute__((swift_name("ed25519_verify(_:_:_:_:_:_:)"))) static inline int todoku_ed25519_verify(
    EVP_MD_CTX *context, EVP_PKEY *key, const void *signature, size_t signature_count, const void *bytes, size_t count) {
  if (todoku_crypto.EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) != 1) return 0;
  return todoku_crypto.EVP_DigestVerify(context, signature, signature_count, bytes, count);
}
/// Writes the 64 bytes of a signature (EVP_DigestSign(3)). 1: done. `context` is new.
__attribute__((swift_name("ed25519_sign(_:_:_:_:_:)"))) static inline int todoku_ed25519_sign(
    EVP_MD_CTX *context, EVP_PKEY *key, unsigned char *signature, const void *bytes, size_t count) {
  size_t signature_count = 64;
  if (todoku_crypto.EVP_DigestSignInit(context, NULL, NULL, NULL, key) != 1) return 0;
  return todoku_crypto.EVP_DigestSign(context, signature, &signature_count, bytes, count);
}
