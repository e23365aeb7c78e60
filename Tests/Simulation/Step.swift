// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// splitmix64.
struct Random {
    private var state: UInt64
    init(_ seed: UInt64) { state = seed &* 0x9E37_79B9_7F4A_7C15 }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }

    mutating func below(_ bound: Int) -> Int { Int(next() % UInt64(bound)) }
}

/// One step. `a` chooses the download or other target among those present, `b` the details: so any part of a history is a history, too.
struct Step {
    enum Kind: Int, CaseIterable {
        case add, steer, all, batch, slice, setting, transfer, pool, commit, owner, toast, clock, jump, server, disk, network, sleep, kill,
            powerCut
        /// Of assets: a call, a publication, a deletion by somebody. And much of what is under way happens.
        case assetCall, publish, spoil, flow
    }

    /// The frequency of each kind.
    private static let weights: [(Kind, Int)] = [
        (.add, 12), (.steer, 12), (.all, 4), (.batch, 4), (.slice, 10), (.setting, 3), (.transfer, 40), (.pool, 22), (.commit, 35),
        (.owner, 8),
        (.toast, 10),
        (.clock, 14), (.jump, 1),
        (.server, 5), (.disk, 4), (.network, 4), (.sleep, 2), (.kill, 3), (.powerCut, 2),
    ]
    private static let table = weights.flatMap { Array(repeating: $0.0, count: $0.1) }
    private static let assetWeights: [(Kind, Int)] = [
        (.add, 2), (.steer, 5), (.all, 2), (.batch, 1), (.slice, 3), (.setting, 1), (.transfer, 10), (.pool, 12), (.commit, 10),
        (.owner, 1), (.toast, 1), (.clock, 6), (.jump, 1), (.server, 1), (.disk, 3), (.network, 3), (.sleep, 1), (.kill, 5),
        (.powerCut, 5), (.assetCall, 26), (.publish, 8), (.spoil, 3), (.flow, 60),
    ]
    private static let assetTable = assetWeights.flatMap { Array(repeating: $0.0, count: $0.1) }

    private static let crowdedTable =
        table.filter { ![.setting, .sleep, .kill, .powerCut, .disk, .network].contains($0) } + Array(repeating: .add, count: 60)

    /// A download may ask all its sources before it ends, and some of them twice.
    private static let mirrorTable =
        table + [Kind.server, .transfer, .transfer, .transfer, .pool].flatMap { Array(repeating: $0, count: 20) }

    /// Stretches are interrupted often, by power cuts too.
    private static let stretchTable =
        mirrorTable + [(Kind.transfer, 60), (.powerCut, 6), (.kill, 3)].flatMap { Array(repeating: $0.0, count: $0.1) }

    let kind: Kind
    let a: Int
    let b: Int

    init(_ random: inout Random, in setting: Setting) {
        let plainTable = setting.stretches ? Self.stretchTable : setting.mirrors ? Self.mirrorTable : Self.table
        let table = setting.assets ? Self.assetTable : setting.crowd == nil ? plainTable : Self.crowdedTable
        kind = table[random.below(table.count)]
        a = Int(random.next() >> 33)
        b = Int(random.next() >> 33)
    }
}
