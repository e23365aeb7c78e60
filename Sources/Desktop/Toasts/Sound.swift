internal import CSound
public import EventLoop

/// Plays sounds of the theme `freedesktop` by name. libcanberra is loaded with the first sound. Silent without libcanberra or a sound
/// server.
///
/// libcanberra by itself reads neither the user's sound theme nor the switch for event sounds. That switch takes effect only if the
/// notification server plays the sound (`ToastServerTraits.sounds`).
///
/// Each sound plays on a thread that ends with the sound, so a hanging sound server blocks nothing else.
@BusActor public final class Sound {
    /// Most simultaneous sounds, and most seconds of each.
    private static let most = 4
    private nonisolated static let seconds: UInt32 = 10

    private var playing = 0
    private let failed: @BusActor @Sendable (Int32) -> Void

    /// - Parameter failed: called with libcanberra's error; 1: libcanberra is not installed.
    public init(failed: @escaping @BusActor @Sendable (Int32) -> Void) { self.failed = failed }

    public func play(_ name: String) {
        guard !name.isEmpty, playing < Self.most else { return }
        playing += 1
        startThread("todoku-sound") { [self] in
            let error = todoku_sound_play(name, Self.seconds)
            BusActor.spawn { [self] in
                playing -= 1
                if error != 0 { failed(error) }
            }
        }
    }
}
