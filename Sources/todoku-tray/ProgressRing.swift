internal import StatusNotifier

/// The tray's icon: a ring that fills clockwise from the top, around a sign. Pure.
struct ProgressRing: Equatable {
    enum Sign: Equatable {
        case arrow
        /// Two bars: everything is paused until the user resumes it.
        case pause
        /// An exclamation mark.
        case attention
    }

    /// The coloured part of the ring, in whole percent.
    enum Lit: Equatable {
        case none
        case percent(Int)
        /// The total is unknown: a quarter of the ring, which moves with each turn.
        case moving(turn: Int)
    }

    var sign = Sign.arrow
    var lit = Lit.none

    /// Panels expect 22 pixels, and 44 on screens with twice the resolution.
    static let sizes: [Int32] = [22, 44]

    var pixmaps: IconPixmaps { IconPixmaps(Self.sizes.map { pixmap($0) }) }

    private struct Colour {
        var red: UInt32
        var green: UInt32
        var blue: UInt32
        var alpha: UInt32 = 255
    }

    // Visible on light and on dark panels.
    private static let track = Colour(red: 0x8c, green: 0x8c, blue: 0x8c, alpha: 0xb0)
    private static let blue = Colour(red: 0x3d, green: 0x9a, blue: 0xe8)
    private static let amber = Colour(red: 0xe8, green: 0xa3, blue: 0x2c)
    private static let red = Colour(red: 0xe5, green: 0x3e, blue: 0x3e)

    private var colour: Colour {
        switch sign {
        case .arrow: Self.blue
        case .pause: Self.amber
        case .attention: Self.red
        }
    }

    /// Radii of the ring, in units of the icon's width.
    private static let outer = 0.48
    private static let inner = 0.36
    /// Samples per pixel in each direction.
    private static let samples = 4

    func pixmap(_ size: Int32) -> Pixmap {
        let arc = Arc(lit)
        let colour = colour
        let step = 1 / (Double(size) * Double(Self.samples))
        var bytes: [UInt8] = []
        bytes.reserveCapacity(4 * Int(size) * Int(size))
        for row in 0..<Int(size) {
            for column in 0..<Int(size) {
                var (ofTrack, ofColour) = (UInt32(0), UInt32(0))
                for index in 0..<Self.samples * Self.samples {
                    let x = (Double(column * Self.samples + index % Self.samples) + 0.5) * step - 0.5
                    let y = (Double(row * Self.samples + index / Self.samples) + 0.5) * step - 0.5
                    switch x * x + y * y {
                    case Self.inner * Self.inner...Self.outer * Self.outer:
                        if arc.contains(x, y) { ofColour += 1 } else { ofTrack += 1 }
                    case ..<(Self.inner * Self.inner): if isSign(x, y) { ofColour += 1 }
                    default: break
                    }
                }
                bytes += Self.mixed(Self.track, ofTrack, colour, ofColour)
            }
        }
        return Pixmap(width: size, height: size, bytes: bytes)
    }

    /// The mean colour of a pixel (alpha, red, green, blue): `countA` samples have colour `a`, `countB` colour `b`, the others none.
    private static func mixed(_ a: Colour, _ countA: UInt32, _ b: Colour, _ countB: UInt32) -> [UInt8] {
        let (weightA, weightB) = (countA * a.alpha, countB * b.alpha)
        let weight = weightA + weightB
        guard weight > 0 else { return [0, 0, 0, 0] }
        func mean(_ x: UInt32, _ y: UInt32) -> UInt8 { UInt8((x * weightA + y * weightB + weight / 2) / weight) }
        let all = UInt32(samples * samples)
        return [UInt8((weight + all / 2) / all), mean(a.red, b.red), mean(a.green, b.green), mean(a.blue, b.blue)]
    }

    private func isSign(_ x: Double, _ y: Double) -> Bool {
        let across = x < 0 ? -x : x
        switch sign {
        case .arrow:
            // A shaft, and a head that points down.
            return across <= 0.055 && (-0.22...0.04).contains(y) || (0...0.22).contains(y) && across <= 0.22 - y
        case .pause: return (0.05...0.135).contains(across) && (-0.17...0.17).contains(y)
        case .attention: return across <= 0.055 && ((-0.22...0.07).contains(y) || (0.13...0.22).contains(y))
        }
    }

    /// A part of the circle, clockwise from `start`. A whole turn is 1; 0 is the top.
    private struct Arc {
        private let start: (x: Double, y: Double)
        private let end: (x: Double, y: Double)
        private let length: Double

        init(_ lit: Lit) {
            let begin: Double
            switch lit {
            case .none: (begin, length) = (0, 0)
            case .percent(let percent): (begin, length) = (0, Double(min(max(percent, 0), 100)) / 100)
            case .moving(let turn): (begin, length) = (Double(turn & 7) / 8, 0.25)
            }
            (start, end) = (Self.point(begin), Self.point(begin + length))
        }

        /// The point on the unit circle after `turns`, clockwise from the top. A series avoids the import of Glibc for sine and cosine.
        private static func point(_ turns: Double) -> (x: Double, y: Double) {
            // Reduce the angle to an eighth of a turn around the nearest quarter, where few terms of the series are enough; then rotate by
            // quarters.
            let quarter = (turns * 4).rounded()
            let angle = (turns - quarter / 4) * 2 * .pi
            let square = angle * angle
            let sine = angle * (1 - square / 6 * (1 - square / 20 * (1 - square / 42)))
            let cosine = 1 - square / 2 * (1 - square / 12 * (1 - square / 30))
            switch Int(quarter) & 3 {
            case 0: return (sine, -cosine)
            case 1: return (cosine, sine)
            case 2: return (-sine, cosine)
            default: return (-cosine, -sine)
            }
        }

        func contains(_ x: Double, _ y: Double) -> Bool {
            guard length > 0 else { return false }
            guard length < 1 else { return true }
            // The point is clockwise of the start, and counterclockwise of the end.
            let isBehindStart = start.x * y - start.y * x >= 0
            let isBeforeEnd = end.x * y - end.y * x < 0
            return length <= 0.5 ? isBehindStart && isBeforeEnd : isBehindStart || isBeforeEnd
        }
    }
}
