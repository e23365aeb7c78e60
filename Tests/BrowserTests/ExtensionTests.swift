import TestSupport
import Testing

@Suite struct `The browser extension` {
    @Test func `decides as its page of settings says`() async {
        let exit = await Child.run(["gjs", "-m", "\(repository)/Tests/Hosts/browser-rules"])
        #expect(exit.status == 0 && exit.errors == "" && exit.output.hasSuffix(" cases agree\n"), "package gjs: \(exit)")
    }

    @Test func `has manifests, ids and texts that agree`() async {
        let exit = await Child.run(["\(repository)/meson-helpers/check-browser"])
        #expect(exit.status == 0 && exit.output == "" && exit.errors == "", "\(exit)")
    }

    @Test(arguments: [
        ("data/browser/chromium/manifest.json", "s/MIIBIjAN/MIIBIjAM/", "the id of the key in Chromium's manifest"),
        ("data/browser/firefox/manifest.json", "s/browser@todoku/other@todoku/", "the id of Firefox's manifest"),
        ("data/browser/org.todoku.browser.chromium.json.in", "s/cacmadan/cacmadam/", "“allowed_origins” is "),
        ("data/browser/org.todoku.browser.firefox.json.in", "s/stdio/socket/", "“type” is socket"),
        ("data/browser/firefox/manifest.json", "s/\"browsingActivity\", //", "“data_collection_permissions” does not require "),
        ("data/browser/firefox/manifest.json", "s/options.html/option.html/", "there is no option.html"),
        ("data/browser/firefox/manifest.json", "s/todoku-16.png/todoku-32.png/", "is no PNG of 16 by 16 pixels"),
        ("data/browser/chromium/manifest.json", "s/\"cookies\", //", "“permissions” differs"),
        ("data/browser/extension/_locales/ja/messages.json", "s/\"queued\"/\"queue\"/", "“queued” is missing"),
        ("data/browser/extension/_locales/ja/messages.json", "s/\\$VERSION\\$//", "the placeholders of “status”"),
        ("data/browser/firefox/manifest.json", "s/}$/},/", "Expecting property name"),
    ])
    func `is refused by the check with one thing wrong`(file: String, change: String, complaint: String) async {
        let folder = TemporaryFolder("todoku-extension")
        let copy = "cp -r --parents data/browser meson-helpers/check-browser Sources/todoku-browser meson.build \(folder.path)"
        #expect(await Child.run(["sh", "-c", copy], folder: repository).status == 0)
        #expect(await Child.run(["sed", "-i", change, folder(file)]).status == 0)
        let exit = await Child.run([folder("meson-helpers/check-browser")])
        #expect(exit.status == 1 && exit.errors == "" && exit.output.contains(complaint), "\(exit)")
    }
}
