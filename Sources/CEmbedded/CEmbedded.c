#include "CEmbedded.h"

#pragma clang diagnostic ignored "-Wc23-extensions"  // #embed

// Each file and each function has a section of its own, so that the linker leaves out what a program does not use.
#define EMBEDDED(name) __attribute__((section(".rodata.todoku." #name))) static const uint8_t name[]
#define GIVE(function, name)                                                                                                               \
  __attribute__((section(".text.todoku." #name))) struct todoku_file function(void) { return (struct todoku_file){name, sizeof name}; }

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
EMBEDDED(help_ja) = {
#embed "../../data/po/help/ja.po"
};

GIVE(todoku_downloader1_xml, downloader1)
GIVE(todoku_download1_xml, download1)
GIVE(todoku_batch1_xml, batch1)
GIVE(todoku_asset1_xml, asset1)
GIVE(todoku_push1_xml, push1)
GIVE(todoku_application_xml, application)
GIVE(todoku_ja_po, ja)
GIVE(todoku_help_ja_po, help_ja)
