// SPDX-License-Identifier: Apache-2.0
// The one function of libFuzzer that is called: https://llvm.org/docs/LibFuzzer.html, "Using libFuzzer as a library".
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*one_input)(const uint8_t *data, size_t size));
