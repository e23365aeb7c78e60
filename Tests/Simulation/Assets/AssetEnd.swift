// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

extension World {
    /// Much of what is under way happens, in a random order.
    func flow(_ count: Int) {
        for _ in 0..<count {
            let (a, b) = (Int(random.next() >> 33), Int(random.next() >> 33))
            switch random.below(8) {
            case 0: slice()
            case 1...3: commit(b)
            case 4...5: work(a, b)
            default: transfer(a, b)
            }
            ringAll()
            check()
            if problem != nil { return }
        }
    }

    /// All updates end; then every asset is updated once more, and unregistered at the end. Nothing may be left.
    func endWithAssets() {
        func isOver(_ what: String) -> Bool {
            runDown()
            if problem == nil { assets?.checkRest() }
            if problem != nil { tell("at the end: \(what)") }
            return problem != nil
        }
        if isOver("all updates have ended") { return }
        // The next startup deletes what could not be deleted.
        restart(power: false)
        network(.open)
        let publishes = random.below(2) == 0
        assets?.updateAll(publishing: publishes)
        if isOver("all assets are updated") { return }
        assets?.checkCurrent(hasPublished: publishes)
        checkEnd()
        assets?.unregisterAll(Int(random.next() >> 33))
        if isOver("all assets are unregistered") { return }
        checkEnd()
    }
}
