internal import Desktop
internal import EventLoop

/// Whether a sound can be played: by libcanberra, which looks it up in the theme `freedesktop`.
enum SoundExamination {
    /// The files that libcanberra may play for `complete-download`, in its order: a missing name loses its last part.
    private static let files = ["complete-download", "complete"].flatMap { name in ["oga", "ogg", "wav"].map { "\(name).\($0)" } }

    @BusActor static func finding(_ environment: [String: String]) async -> Finding {
        guard let library = await Pool.programs.value(within: BusProbe.patience, { Library.load("libcanberra.so.0") != nil }) else {
            return Finding(.sound, .wrong, Phrase("libcanberra cannot be loaded in time"), advice: Phrase("Check the disk with its file."))
        }
        guard library else {
            return Finding(.sound, .missing, Phrase("without libcanberra no sound is played"), advice: Phrase("Install libcanberra0."))
        }
        let found = await Pool.programs.value(within: BusProbe.patience) { soundFile(environment) }
        guard let file = found.flatMap({ $0 }) else {
            return Finding(
                .sound, .missing, Phrase("the theme “freedesktop” has no sound complete-download, so nothing is heard"),
                advice: Phrase("Install sound-theme-freedesktop."))
        }
        // Whether it is heard is known to the user only: no sound is played here, and a server may be mute.
        return Finding(.sound, .found, Phrase("libcanberra is there, and the sound \(file); no sound was played"))
    }

    /// Blocks.
    private static func soundFile(_ environment: [String: String]) -> String? {
        let shared = environment["XDG_DATA_DIRS"].flatMap { $0.isEmpty ? nil : $0 } ?? "/usr/local/share:/usr/share"
        var bases = [Folders.data(environment: environment)]
        bases.append(contentsOf: shared.split(separator: ":").map(String.init))
        for base in bases {
            for file in files {
                let path = "\(base)/sounds/freedesktop/stereo/\(file)"
                if Paths.exists(path) { return path }
            }
        }
        return nil
    }
}
