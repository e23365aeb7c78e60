internal import TestSupport
internal import Testing

@Suite struct `The table of libcanberra's functions` {
    @Test func `agrees with the real header`() async throws {
        let folder = TemporaryFolder()
        let source = """
            #include <canberra.h>
            #include "CSound.h"
            #define CHECK(result, name, ...) result (*check_##name)(__VA_ARGS__) = name;
            TODOKU_SOUND_FUNCTIONS(CHECK)
            """
        writeFile(folder("check.c"), source.utf8)
        let compiled = await Child.run(["clang", "-Werror", "-fsyntax-only", "-I\(repository)/Sources/CSound/include", folder("check.c")])
        #expect(compiled.status == 0, "this test needs libcanberra-dev: \(compiled.errors)")
    }
}

@Suite struct `The table of libnotify's functions` {
    /// Compares our own copies of C types and prototypes with the headers of libnotify-dev.
    @Test func `agrees with the real headers`() async throws {
        let flags = await Child.run(["pkg-config", "--cflags", "libnotify"])
        try #require(flags.status == 0, "this test needs libnotify-dev and pkg-config: \(flags.errors)")
        let folder = TemporaryFolder()
        let source = """
            #include <libnotify/notify.h>
            #include <gio/gio.h>
            #include "CNotify.h"
            #define CHECK(result, name, ...) result (*check_##name)(__VA_ARGS__) = name;
            TODOKU_NOTIFY_FUNCTIONS(CHECK)
            TODOKU_NOTIFY_OPTIONAL_FUNCTIONS(CHECK)
            """
        writeFile(folder("check.c"), source.utf8)
        // Print the values and layouts that the table lacks, once with the real headers and once with ours.
        let values = """
            #include "CNotify.h"
            _Static_assert(sizeof(GError) == 16 && __builtin_offsetof(GError, message) == 8, "GError");
            _Static_assert(G_BUS_TYPE_SESSION == 2 && NOTIFY_URGENCY_LOW == 0 && NOTIFY_URGENCY_NORMAL == 1, "enums");
            _Static_assert(sizeof(gboolean) == 4 && sizeof(gsize) == 8 && sizeof(gulong) == 8, "types");
            """
        writeFile(folder("ours.c"), values.utf8)
        writeFile(folder("theirs.c"), "#include <libnotify/notify.h>\n#include <gio/gio.h>\n\(values)".utf8)
        for file in ["check.c", "ours.c", "theirs.c"] {
            let compiled = await Child.run(
                ["clang", "-Werror", "-fsyntax-only", "-I\(repository)/Sources/CNotify/include", folder(file)]
                    + flags.output.split { $0 == " " || $0 == "\n" }.map(String.init))
            #expect(compiled.status == 0, "\(file): \(compiled.errors)")
        }
    }
}
