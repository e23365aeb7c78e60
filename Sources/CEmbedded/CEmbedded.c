#include "CEmbedded.h"

#pragma clang diagnostic ignored "-Wc23-extensions"  // #embed

// Each file has a section of its own, so that the linker leaves out what a program does not use.
#define EMBEDDED(name) __attribute__((section(".rodata.todoku." #name))) static const uint8_t name[]
#define FILE_OF(name) (struct todoku_file){name, sizeof name}

EMBEDDED(downloader1) = {
#embed "../../data/dbus-interfaces/org.todoku.Downloader1.xml"
};
EMBEDDED(download1) = {
#embed "../../data/dbus-interfaces/org.todoku.Download1.xml"
};
EMBEDDED(batch1) = {
#embed "../../data/dbus-interfaces/org.todoku.Batch1.xml"
};
EMBEDDED(asset1) = {
#embed "../../data/dbus-interfaces/org.todoku.Asset1.xml"
};
EMBEDDED(push1) = {
#embed "../../data/dbus-interfaces/org.todoku.Push1.xml"
};
EMBEDDED(application) = {
#embed "../../data/dbus-interfaces/org.freedesktop.Application.xml"
};
EMBEDDED(ja) = {
#embed "../../data/po/ja.po"
};

struct todoku_file todoku_downloader1_xml(void) { return FILE_OF(downloader1); }
struct todoku_file todoku_download1_xml(void) { return FILE_OF(download1); }
struct todoku_file todoku_batch1_xml(void) { return FILE_OF(batch1); }
struct todoku_file todoku_asset1_xml(void) { return FILE_OF(asset1); }
struct todoku_file todoku_push1_xml(void) { return FILE_OF(push1); }
struct todoku_file todoku_application_xml(void) { return FILE_OF(application); }
struct todoku_file todoku_ja_po(void) { return FILE_OF(ja); }
