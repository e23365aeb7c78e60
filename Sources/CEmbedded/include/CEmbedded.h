// Files of `data/` that the programs contain. The compiler reads them by `#embed` (C23). Swift's own way, `.embedInCode`, makes an array
// literal of a file's bytes, and the compiler needs twenty seconds for it.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct todoku_file {
  const uint8_t *bytes;
  size_t count;
};

// data/dbus-interfaces
struct todoku_file todoku_downloader1_xml(void);
struct todoku_file todoku_download1_xml(void);
struct todoku_file todoku_batch1_xml(void);
struct todoku_file todoku_asset1_xml(void);
struct todoku_file todoku_push1_xml(void);
struct todoku_file todoku_application_xml(void);
// data/po
struct todoku_file todoku_ja_po(void);
// data/po/help
struct todoku_file todoku_help_ja_po(void);
