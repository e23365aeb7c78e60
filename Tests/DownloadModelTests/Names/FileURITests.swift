internal import DownloadModel
internal import Testing

@Suite struct `A file URI` {
    @Test(
        arguments: [
            ("file:///home/u/a.txt", "/home/u/a.txt"), ("file:/home/u/a.txt", "/home/u/a.txt"), ("FILE://LocalHost/a", "/a"),
            ("file:///%E5%86%99%E7%9C%9F%201.jpg", "/写真 1.jpg"), ("file:///写真", "/写真"), ("file:///a%2Fb", "/a/b"), ("file:///", "/"),
            ("file://elsewhere/a", nil), ("file:a", nil), ("file:", nil), ("file://", nil), ("file://localhost", nil), ("", nil),
            ("fil", nil),
            ("http:///a", nil), ("file:///a%", nil), ("file:///a%4", nil), ("file:///a%00b", nil), ("file:///a%FF", nil),
            ("file:///a?b", nil),
            ("file:///a#b", nil), ("file:\u{301}///a", nil),
        ] as [(String, String?)])
    func `of this machine is a path, and any other is not`(uri: String, path: String?) { #expect(localPath(ofFileURI: uri) == path) }
}
