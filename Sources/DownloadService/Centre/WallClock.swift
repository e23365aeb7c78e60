internal import DownloadModel
internal import EventLoop

extension WallTime {
    static var now: WallTime { WallTime(microseconds: wallClock()) }
}
