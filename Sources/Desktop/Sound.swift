internal import CSound
public import EventLoop

/// Sounds of the user's theme, by name: through libcanberra, which is loaded with the first. Silent where it, or what it plays by, is absent.
///
/// Each plays on a thread that lasts as long as the sound: a sound server that hangs holds up nobody.
@BusActor public final class Sound {
    /// So many at a time, and so many seconds of each at most.
    private static let most = 4
    private nonisolated static let seconds: UInt32 = 10

    private var playing = 0

    public init() {}

    public func play(_ name: String) {
        guard !name.isEmpty, playing < Self.most else { return }
        playing += 1
        startThread("todoku-sound") { [self] in
            _ = todoku_sound_play(name, Self.seconds)
            BusActor.spawn { [self] in playing -= 1 }
        }
    }
}
