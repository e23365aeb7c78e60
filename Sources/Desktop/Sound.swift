internal import CSound
public import EventLoop

/// Sounds of the theme `freedesktop`, by name: through libcanberra, which is loaded with the first. Silent where it, or what it plays by,
/// is absent.
///
/// libcanberra by itself asks no desktop for the user's theme, nor whether sounds of events are wanted at all: only where the notification
/// server plays (`ToastServerTraits.sounds`) does the desktop's switch count.
///
/// Each plays on a thread that lasts as long as the sound: a sound server that hangs holds up nobody.
@BusActor public final class Sound {
    /// So many at a time, and so many seconds of each at most.
    private static let most = 4
    private nonisolated static let seconds: UInt32 = 10

    private var playing = 0
    private let failed: @BusActor @Sendable (Int32) -> Void

    /// - Parameter failed: called with libcanberra's error, 1 where it is not there.
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
