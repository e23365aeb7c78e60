internal import DBus
internal import DownloadModel
internal import PushModel
internal import WebPush

private let now = WallTime(microseconds: 1_800_000_000_000_000)
private let most: ByteCount = 1 << 20
private let rules = try? PushRules(
    decoding: [
        "hosts": .strings(["a.example", "*.b.example"]), "max-size": .uint64(most), "types": .strings(["image/*", "text/plain"]),
    ], app: "org.example.App", from: .user)
private let keys = try? WebPushKeys.generate()

/// The bytes as a message that came by version 1, and as one that came by version 2: only who has our keys can encrypt one.
func fuzzPush(_ bytes: [UInt8]) {
    guard let rules, let keys else { return check(false, "the rules or the keys are refused") }
    check((try? keys.decrypt(bytes)) == nil, "decrypted")
    do throws(PushRefusal) {
        let push = try rules.check(try PushMessage(bytes), now: now)
        guard let url = try? DownloadURL(push.url) else { return check(false, "\(push.url) is refused when it is read again") }
        check(url.text == push.url && url.scheme == "https" && url.username == nil && url.password == nil, push.url)
        check(url.host == "a.example" || url.host.hasSuffix(".b.example"), url.host)
        check(push.size <= most, "\(push.size) bytes")
        check(push.sha256.utf8.count == 64 && push.sha256 == push.sha256.lowercased(), push.sha256)
        check(push.patience > 0 && push.patience <= 366 * 24 * 3600 * 1000, "\(push.patience) ms")
        check(push.type.map { $0.hasPrefix("image/") || $0 == "text/plain" } ?? false, "\(push.type ?? "")")
    } catch {
        check(!error.text.isEmpty && error.text.utf8.count < 4096, error.text)
        check(!error.text.unicodeScalars.contains { $0.value < 32 || $0.value == 127 }, error.text)
    }
}
