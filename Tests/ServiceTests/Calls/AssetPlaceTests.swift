internal import DownloadModel
internal import Testing

@testable internal import DownloadService

/// An identity decides, so the test gives it: few file systems give the number of a deleted folder to the next one.
@Suite struct `The place of an asset` {
    private let one: AssetKey
    private let two: AssetKey

    init() throws { (one, two) = (try AssetKey(app: "org.example.App", name: "one"), try AssetKey(app: "org.example.App", name: "two")) }

    private func folder(_ inode: UInt64, born: Int64?, device: UInt64 = 1, mount: UInt64 = 1) -> FileIdentity {
        FileIdentity(device: device, inode: inode, mount: mount, boot: "", born: born)
    }

    @Test func `is its own by any path and mount`() {
        var places = AssetPlaces()
        #expect(places.claim(folder(5, born: 100), for: one) == nil)
        #expect(places.claim(folder(5, born: 100), for: one) == nil)
        #expect(places.claim(folder(5, born: 100, mount: 2), for: two) == one)
        #expect(places.claim(folder(5, born: 100, device: 2), for: two) == nil)
        places.release(one)
        #expect(places.claim(folder(5, born: 100), for: two) == nil)
    }

    @Test func `is free once a new folder has the number of the deleted one`() {
        var places = AssetPlaces()
        #expect(places.claim(folder(5, born: 100), for: one) == nil)
        #expect(places.claim(folder(5, born: 200), for: two) == nil)
        // The asset whose folder is gone has none, and so takes none from the other one.
        places.release(one)
        #expect(places.claim(folder(5, born: 200), for: one) == two)
        #expect(places.claim(folder(6, born: 300), for: one) == nil)
        places.release(two)
        #expect(places.claim(folder(5, born: 200), for: one) == nil)
        #expect(places.claim(folder(6, born: 300), for: two) == nil)
    }

    @Test(arguments: [(100, nil), (nil, 200), (nil, nil)] as [(Int64?, Int64?)])
    func `stays its own where no birth time is known`(born: (Int64?, Int64?)) {
        var places = AssetPlaces()
        #expect(places.claim(folder(5, born: born.0), for: one) == nil)
        #expect(places.claim(folder(5, born: born.1), for: two) == one)
    }
}
