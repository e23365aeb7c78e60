#define _DEFAULT_SOURCE
#include "CCrypto.h"
#include <dlfcn.h>
#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/params.h>
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

static EVP_PKEY *p256_key(const unsigned char *secret, const unsigned char *point) {
  char group[] = "prime256v1";
  unsigned char octets[65], number[32];
  memcpy(octets, point, sizeof octets);
  OSSL_PARAM params[4] = {
      {OSSL_PKEY_PARAM_GROUP_NAME, OSSL_PARAM_UTF8_STRING, group, sizeof group - 1, 0},
      {OSSL_PKEY_PARAM_PUB_KEY, OSSL_PARAM_OCTET_STRING, octets, sizeof octets, 0},
      {NULL, 0, NULL, 0, 0},
      {NULL, 0, NULL, 0, 0},
  };
  if (secret) {
    // Numbers of OSSL_PARAM are in the machine's order.
    for (size_t i = 0; i < sizeof number; i++) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
      number[i] = secret[sizeof number - 1 - i];
#else
      number[i] = secret[i];
#endif
    }
    params[2] = (OSSL_PARAM){OSSL_PKEY_PARAM_PRIV_KEY, OSSL_PARAM_UNSIGNED_INTEGER, number, sizeof number, 0};
  }
  EVP_PKEY *key = NULL;
  EVP_PKEY_CTX *context = todoku_crypto.EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
  if (!context || todoku_crypto.EVP_PKEY_fromdata_init(context) != 1 ||
      todoku_crypto.EVP_PKEY_fromdata(context, &key, secret ? EVP_PKEY_KEYPAIR : EVP_PKEY_PUBLIC_KEY, params) != 1)
    key = NULL;
  todoku_crypto.EVP_PKEY_CTX_free(context);
  explicit_bzero(number, sizeof number);
  return key;
}

int todoku_p256_generate(unsigned char secret[32], unsigned char point[65]) {
  EVP_PKEY *key = todoku_crypto.EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
  if (!key) return 0;
  BIGNUM *number = NULL;
  size_t count = 0;
  int ok = todoku_crypto.EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, point, 65, &count) == 1 && count == 65 &&
           point[0] == 4 && todoku_crypto.EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_PRIV_KEY, &number) == 1 &&
           todoku_crypto.BN_bn2binpad(number, secret, 32) == 32;
  todoku_crypto.BN_clear_free(number);
  todoku_crypto.EVP_PKEY_free(key);
  return ok;
}

int todoku_p256_agree(const unsigned char secret[32], const unsigned char point[65], const unsigned char peer[65], unsigned char shared[32]) {
  EVP_PKEY *own = p256_key(secret, point), *other = p256_key(NULL, peer);
  EVP_PKEY_CTX *context = own && other ? todoku_crypto.EVP_PKEY_CTX_new(own, NULL) : NULL;
  size_t count = 32;
  int ok = context && todoku_crypto.EVP_PKEY_derive_init(context) == 1 && todoku_crypto.EVP_PKEY_derive_set_peer(context, other) == 1 &&
           todoku_crypto.EVP_PKEY_derive(context, shared, &count) == 1 && count == 32;
  todoku_crypto.EVP_PKEY_CTX_free(context);
  todoku_crypto.EVP_PKEY_free(own);
  todoku_crypto.EVP_PKEY_free(other);
  return ok;
}

int todoku_hmac_sha256(const void *key, size_t key_count, const void *bytes, size_t count, unsigned char digest[32]) {
  unsigned int length = 32;
  const EVP_MD *method = todoku_crypto.EVP_get_digestbyname("SHA256");
  if (!method || key_count > INT_MAX) return 0;
  return todoku_crypto.HMAC(method, key, (int)key_count, (const unsigned char *)bytes, count, digest, &length) != NULL && length == 32;
}

int todoku_aes_128_gcm_open(
    const unsigned char key[16], const unsigned char nonce[12], const void *bytes, size_t count, const unsigned char tag[16],
    unsigned char *plain) {
  unsigned char copy[16];
  memcpy(copy, tag, sizeof copy);
  int length = 0, rest = 0;
  EVP_CIPHER_CTX *context = count <= INT_MAX ? todoku_crypto.EVP_CIPHER_CTX_new() : NULL;
  int ok = context && todoku_crypto.EVP_DecryptInit_ex(context, todoku_crypto.EVP_aes_128_gcm(), NULL, key, nonce) == 1 &&
           todoku_crypto.EVP_DecryptUpdate(context, plain, &length, (const unsigned char *)bytes, (int)count) == 1 &&
           todoku_crypto.EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, sizeof copy, copy) == 1 &&
           todoku_crypto.EVP_DecryptFinal_ex(context, plain + length, &rest) == 1 && (size_t)(length + rest) == count;
  todoku_crypto.EVP_CIPHER_CTX_free(context);
  return ok;
}
