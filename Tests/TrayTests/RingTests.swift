import StatusNotifier
import Testing

@testable import todoku_tray

/// A pixel in the wire format.
private struct Pixel: Equatable, CustomStringConvertible {
    var alpha: UInt8
    var red: UInt8
    var green: UInt8
    var blue: UInt8
    var description: String { "(\(alpha) \(red) \(green) \(blue))" }

    var isClear: Bool { alpha == 0 }
    /// Whether the pixel is an unlit part of the ring.
    var isTrack: Bool { self == Pixel(alpha: 0xb0, red: 0x8c, green: 0x8c, blue: 0x8c) }
    var isBlue: Bool { self == Pixel(alpha: 255, red: 0x3d, green: 0x9a, blue: 0xe8) }
    var isRed: Bool { self == Pixel(alpha: 255, red: 0xe5, green: 0x3e, blue: 0x3e) }
    var isAmber: Bool { self == Pixel(alpha: 255, red: 0xe8, green: 0xa3, blue: 0x2c) }
}

extension Pixmap {
    fileprivate func pixel(_ x: Int, _ y: Int) -> Pixel {
        let place = 4 * (y * Int(width) + x)
        return Pixel(alpha: bytes[place], red: bytes[place + 1], green: bytes[place + 2], blue: bytes[place + 3])
    }
    fileprivate var pixels: [Pixel] { (0..<Int(height)).flatMap { y in (0..<Int(width)).map { x in pixel(x, y) } } }

    /// The pixel in the middle of the ring at an hour of the clock: 0, 3, 6, 9.
    fileprivate func ring(_ hour: Int) -> Pixel {
        let (size, edge) = (Int(width), Int((Double(width) * 0.08).rounded()))
        return switch hour {
        case 0: pixel(size / 2 - 1, edge)
        case 3: pixel(size - 1 - edge, size / 2 - 1)
        case 6: pixel(size / 2 - 1, size - 1 - edge)
        default: pixel(edge, size / 2 - 1)
        }
    }
}

@Suite struct `The tray's ring` {
    @Test func `has sizes for panels of single and double resolution`() {
        let pixmaps = ProgressRing().pixmaps.pixmaps
        #expect(pixmaps.map(\.width) == [22, 44] && pixmaps.map(\.height) == [22, 44])
        #expect(pixmaps.map(\.bytes.count) == [4 * 22 * 22, 4 * 44 * 44])
    }

    @Test(arguments: ProgressRing.sizes)
    func `fills clockwise from the top`(size: Int32) {
        func lit(_ percent: Int) -> [Bool] {
            let picture = ProgressRing(lit: .percent(percent)).pixmap(size)
            return [3, 6, 9].map { picture.ring($0).isBlue }
        }
        #expect(lit(0) == [false, false, false])
        #expect(lit(20) == [false, false, false])
        #expect(lit(40) == [true, false, false])
        #expect(lit(65) == [true, true, false])
        #expect(lit(90) == [true, true, true])
        for hour in [0, 3, 6, 9] {
            #expect(ProgressRing(lit: .percent(0)).pixmap(size).ring(hour).isTrack, "\(hour)")
            #expect(ProgressRing(lit: .none).pixmap(size).ring(hour).isTrack, "\(hour)")
            #expect(ProgressRing(lit: .percent(100)).pixmap(size).ring(hour).isBlue, "\(hour)")
        }
    }

    @Test(arguments: ProgressRing.sizes)
    func `grows brighter with each step, and never darker`(size: Int32) {
        var last = -1
        for percent in stride(from: 0, through: 100, by: 4) {
            let count = ProgressRing(lit: .percent(percent)).pixmap(size).pixels.count { $0.isBlue }
            #expect(count > last || percent == 0, "\(percent) %")
            last = count
        }
        #expect(ProgressRing(lit: .percent(-5)).pixmap(size) == ProgressRing(lit: .none).pixmap(size))
        #expect(ProgressRing(lit: .percent(101)).pixmap(size) == ProgressRing(lit: .percent(100)).pixmap(size))
        // At 50 % half of the area is lit.
        func dark(_ percent: Int) -> Int { ProgressRing(lit: .percent(percent)).pixmap(size).pixels.count { $0.isTrack } }
        let (none, half) = (dark(0), dark(50))
        #expect(dark(100) == 0 && abs(2 * half - none) <= 8, "\(half) of \(none)")
    }

    @Test(arguments: ProgressRing.sizes)
    func `is clear outside, and smooth at its edges`(size: Int32) {
        let picture = ProgressRing(lit: .percent(100)).pixmap(size)
        let last = Int(size) - 1
        for (x, y) in [(0, 0), (last, 0), (0, last), (last, last)] { #expect(picture.pixel(x, y).isClear) }
        let pixels = picture.pixels
        #expect(pixels.contains { $0.alpha > 0 && $0.alpha < 255 })
        // A half-covered pixel has the full colour, because alpha is not premultiplied.
        #expect(pixels.allSatisfy { $0.isClear || (($0.red, $0.green, $0.blue) == (0x3d, 0x9a, 0xe8)) })
        // The picture is symmetric: nothing is shifted by a fraction of a pixel.
        for y in 0...last { for x in 0...last { #expect(picture.pixel(x, y) == picture.pixel(last - x, y)) } }
    }

    @Test(arguments: ProgressRing.sizes)
    func `shows the state by its sign and colour`(size: Int32) {
        let middle = Int(size) / 2
        #expect(ProgressRing(sign: .arrow).pixmap(size).pixel(middle, middle).isBlue)
        #expect(ProgressRing(sign: .attention).pixmap(size).pixel(middle, middle).isRed)
        #expect(ProgressRing(sign: .pause).pixmap(size).pixel(middle, middle).isClear)
        #expect(ProgressRing(sign: .pause).pixmap(size).pixels.contains { $0.isAmber })
        #expect(ProgressRing(sign: .attention, lit: .percent(100)).pixmap(size).ring(0).isRed)
    }

    @Test func `rotates while the total is unknown`() {
        let turns = (0..<8).map { ProgressRing(lit: .moving(turn: $0)).pixmap(22) }
        for (index, turn) in turns.enumerated() {
            #expect(turn != turns[(index + 1) % 8])
            let lit = turn.pixels.count { $0.isBlue }
            #expect(lit > 0 && lit < ProgressRing(lit: .percent(60)).pixmap(22).pixels.count { $0.isBlue })
        }
        #expect(ProgressRing(lit: .moving(turn: 9)).pixmap(22) == turns[1])
        #expect([0, 3, 6, 9].map { turns[1].ring($0).isBlue } == [false, true, false, false])
        #expect([0, 3, 6, 9].map { turns[5].ring($0).isBlue } == [false, false, false, true])
    }
}
