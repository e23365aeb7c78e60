// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Glibc
import Scheduling

/// The options of the command line.
struct Arguments {
    var histories = 100_000
    var steps = 60
    var seed: UInt64 = 1
    var replay: UInt64?
    var plant: Plant?
    /// Only tells what is violated in each history, and goes on.
    var surveys = false
    /// Only histories with assets.
    var onlyAssets = false
    /// Only histories with mirrors.
    var onlyMirrors = false
    /// Only histories with stretches, every second one with mirrors too.
    var onlyStretches = false
    /// Processes at a time.
    var jobs = max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN)))

    init(_ words: [String]) {
        var words = words[...]
        func number<N: FixedWidthInteger>(_ word: String?) -> N {
            guard let word, let number = N(word) else { Arguments.fail("a number is missing") }
            return number
        }
        while let word = words.popFirst() {
            switch word {
            case "--histories": histories = number(words.popFirst())
            case "--steps": steps = number(words.popFirst())
            case "--seed": seed = number(words.popFirst())
            case "--jobs": jobs = number(words.popFirst())
            case "--assets": onlyAssets = true
            case "--mirrors": onlyMirrors = true
            case "--stretches": onlyStretches = true
            case "--survey": surveys = true
            case "--replay": replay = number(words.popFirst())
            case "--plant":
                guard let name = words.popFirst(), let plant = Plant(rawValue: name) else {
                    Arguments.fail("--plant takes one of \(Plant.allCases.map(\.rawValue).joined(separator: ", "))")
                }
                self.plant = plant
            default: Arguments.fail("what is \(word)?")
            }
        }
    }

    /// The seed of a history.
    func seed(_ number: Int) -> UInt64 {
        let number = UInt64(number)
        if onlyAssets { return (seed / 8 &+ number) &* 8 &+ 4 }
        if onlyStretches { return (seed / 32 &+ number / 2) &* 32 &+ (number % 2 == 0 ? 25 : 5) }
        return onlyMirrors ? (seed / 16 &+ number) &* 16 &+ 6 : seed &+ number
    }

    static func fail(_ text: String) -> Never {
        print(
            """
            todoku-simulation: \(text)
            todoku-simulation [--histories N] [--steps N] [--seed N] [--jobs N] [--replay SEED] [--plant FAULT] [--assets] \
            [--mirrors] [--stretches] [--survey]
            """)
        exit(64)
    }
}

/// A deliberate fault in the executor, or in its surroundings, to show that the invariants find it.
enum Plant: String, CaseIterable {
    /// The engine reports a checkpoint that it has not flushed.
    case unflushed
    /// Nothing waits for its commit.
    case early
    /// The store loses the rows of part files to delete.
    case forgetful
    /// The engine resumes from bytes without a validator.
    case trusting
    /// The store loses the last requests to hosts with a request interval.
    case hasty
    /// A restart announces the end of each download that was being committed.
    case twice
    /// The engine trusts a cached copy without looking at its file.
    case credulous
    /// The store loses the owners' acknowledgements.
    case deaf
    /// The store loses that a toast is owed.
    case silent
    /// The store loses that a toast was shown.
    case repetitive
    /// The store does not update a batch when a member is removed from the list.
    case uncounted
    /// The sleep of the machine is not reported.
    case restless
    /// The condition of the network is not reported.
    case severed
    /// A transfer that ends just as it is stopped does not report its file name.
    case nameless
    /// The store loses that CancelAll is under way.
    case halfway
    /// The store loses that all downloads are paused.
    case wakeful
    /// The executor performs the actions of a turn in reverse order.
    case backwards
    /// The executor starts effects before their commit.
    case eager
    /// The executor loses the rows of a turn that is nested in another.
    case nested
    /// The executor acknowledges a repeated call although its download was undone meanwhile.
    case hopeful
    /// The loop forgets the slices that the executor asked for.
    case sliceless
    /// The loop forgets to continue with messages and with members of a batch.
    case stuck
    /// The clock forgets the alarm.
    case sleepless
    /// A new database is written without the downloads that have no place in the queue yet.
    case partial
    /// The engine does not say which port and scheme a redirect leads to.
    case portless
    /// The engine reports a redirect as a lost connection, so the scheduler does not learn that the server answers again.
    case unheard
    /// The store keeps the resume data of a download that is cancelled.
    case clinging
    /// The engine reports a further request as over while it still holds its connection.
    case encroaching
    /// What an extraction has left is not deleted with its archive.
    case leaky
    /// The executor loses AllEnded if no download ends in that turn, because the last one was undone.
    case mute
    /// The store loses what is to be deleted of an asset.
    case untidy
    /// The store loses the download of an asset’s update.
    case orphaned
    /// The store keeps the row of an asset that was unregistered.
    case undead
    /// The actions for assets do not wait for their rows.
    case rash
    /// The alarm of the assets is not set.
    case dozing
    /// A call about an asset gets no answer if the commit fails.
    case speechless
    /// The manifest of an asset that was unregistered is not deleted.
    case lingering
    /// An archive is downloaded without its checksum.
    case gullible
    /// The download of an archive stays on the list when its files are deleted.
    case messy
    /// Nobody looks whether the installed version is still there.
    case blind
    /// Unpacked files are not flushed before their folder gets its name.
    case loose
    /// A folder is deleted though the link leads to it.
    case ruthless
    /// ClearEnded does not spare the downloads of updates.
    case sweeping
    /// The engine does not tell the sizes of files.
    case sizeless
    /// The engine tells of no bytes of earlier responses, so one source is blamed for the bytes of another.
    case slanderous
    /// The store loses which sources had wrong bytes.
    case forgiving
    /// The engine joins the bytes of two sources that nothing proves to be the same.
    case blending
    /// The resume data does not say whose bytes they are.
    case placeless
    /// The engine asks the next source, and does not report why it left the last one.
    case unmoved
    /// The store loses the gaps between the parts of a file that several connections have brought.
    case bridged
    /// The engine does not report that the response to a further request brings a part of the file.
    case taciturn

    var isOfExecutor: Bool { [.early, .backwards, .eager, .nested, .hopeful, .mute].contains(self) }
}

/// The history of a seed: its steps, in order.
func history(seed: UInt64, steps: Int) -> [Step] {
    var random = Random(seed)
    let setting = Setting(seed: seed, plant: nil)
    return (0..<steps).map { _ in Step(&random, in: setting) }
}

/// The circumstances of a history.
struct Setting {
    let plant: Plant?
    /// One world in eight is full of redirects.
    let redirects: Bool
    /// One world in eight has assets.
    let assets: Bool
    /// In one world in eight, transfers make further requests. So they do in worlds of stretches.
    let ranges: Bool
    /// In one world in sixteen, and in half of the worlds of stretches, downloads have mirrors.
    let mirrors: Bool
    /// In one world in sixteen, further requests bring stretches of the file. Half of these worlds have mirrors.
    let stretches: Bool
    /// In one world in sixteen, there are more downloads, most of them large; nil: in this world there are not.
    let crowd: Crowd?

    /// What limits the downloads of a crowded world.
    enum Crowd {
        /// Only the sizes of the files.
        case sizes
        /// Two connections to a host, over HTTP/2: by `MaxPerHost`, or by host rules.
        case connections, rules
    }

    init(seed: UInt64, plant: Plant?) {
        stretches = seed % 32 == 5 || seed % 32 == 25
        (self.plant, redirects, assets) = (plant, seed % 8 == 0, seed % 8 == 4)
        ranges = seed % 16 == 10 || seed % 16 == 14 || stretches
        mirrors = seed % 16 == 6 || seed % 32 == 25
        crowd = seed % 16 == 2 ? (seed % 32 == 2 ? .sizes : seed % 64 == 18 ? .connections : .rules) : nil
    }
}

func violation(of steps: [Step], in setting: Setting) -> String? {
    let world = World(setting)
    return world.live(steps)
}

/// Removes all steps that the violation does not need.
func minimal(_ steps: [Step], in setting: Setting) -> [Step] {
    var steps = steps
    var size = steps.count / 2
    while size > 0 {
        var start = 0
        while start < steps.count {
            var fewer = steps
            fewer.removeSubrange(start..<min(start + size, fewer.count))
            if violation(of: fewer, in: setting) != nil { steps = fewer } else { start += size }
        }
        size /= 2
    }
    return steps
}

func report(seed: UInt64, _ arguments: Arguments) -> Bool {
    let steps = history(seed: seed, steps: arguments.steps)
    let setting = Setting(seed: seed, plant: arguments.plant)
    guard let first = violation(of: steps, in: setting) else { return false }
    if arguments.surveys {
        print("seed \(seed): \(first)")
        return true
    }
    let few = minimal(steps, in: setting)
    let text = violation(of: few, in: setting) ?? ""
    print("seed \(seed): \(text)\nthe shortest history that shows it (todoku-simulation --replay \(seed)):")
    let world = World(setting)
    world.tells = true
    _ = world.live(few)
    return true
}

@main enum Simulation {
    /// Starts this program again with a fixed order of sets and dictionaries, because a history must be repeatable.
    private static func makeRepeatable() {
        guard getenv("SWIFT_DETERMINISTIC_HASHING") == nil else { return }
        setenv("SWIFT_DETERMINISTIC_HASHING", "1", 1)
        let words: [UnsafeMutablePointer<CChar>?] = CommandLine.arguments.map { strdup($0) } + [nil]
        execv("/proc/self/exe", words)
        preconditionFailure("execv: \(errno)")
    }

    static func main() {
        makeRepeatable()
        let arguments = Arguments(Array(CommandLine.arguments.dropFirst()))
        if let seed = arguments.replay { exit(report(seed: seed, arguments) ? 1 : 0) }

        var begun = timespec()
        clock_gettime(CLOCK_MONOTONIC, &begun)
        var children: [pid_t] = []
        for job in 0..<arguments.jobs {
            let pid = fork()
            if pid != 0 {
                children.append(pid)
                continue
            }
            var isViolated = false
            for number in stride(from: job, to: arguments.histories, by: arguments.jobs) {
                if report(seed: arguments.seed(number), arguments) { isViolated = true }
                if isViolated, !arguments.surveys { break }
            }
            finish(isViolated ? 1 : 0)
        }
        var isViolated = false
        while !children.isEmpty {
            var status: Int32 = 0
            let pid = wait(&status)
            children.removeAll { $0 == pid }
            guard status != 0, !isViolated else { continue }
            isViolated = true
            if arguments.surveys { continue }
            // The first violation is enough.
            for other in children { kill(other, SIGKILL) }
        }
        var ended = timespec()
        clock_gettime(CLOCK_MONOTONIC, &ended)
        if isViolated {
            print("simulation: an invariant was violated")
            exit(1)
        }
        print(
            "simulation: \(arguments.histories) histories of \(arguments.steps) steps from seed \(arguments.seed) in \(ended.tv_sec - begun.tv_sec) s, no invariant violated"
        )
    }
}

/// Ends a child process after its output is flushed.
private func finish(_ status: Int32) -> Never {
    fflush(nil)
    _exit(status)
}
