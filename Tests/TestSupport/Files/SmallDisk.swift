internal import Glibc

/// A small file system in memory, mounted for one test. Only root may mount; `isPossible` tells.
public struct SmallDisk: Sendable {
    public static func isPossible() async -> Bool {
        guard geteuid() == 0 else { return false }
        return (try? await withDisk(bytes: 1 << 20) { _ in true }) == true
    }

    public let path: String

    /// Mounts a disk, runs `body`, and unmounts the disk. nil if it cannot be mounted.
    public static func withDisk<R: Sendable>(bytes: Int, _ body: (SmallDisk) async throws -> R) async throws -> R? {
        let folder = TemporaryFolder("todoku-disk")
        let path = folder.makeFolder("disk")
        guard await Child.run(["mount", "-t", "tmpfs", "-o", "size=\(bytes)", "tmpfs", path]).status == 0 else { return nil }
        let result: Result<R, any Error>
        do {
            result = .success(try await body(SmallDisk(path: path)))
        } catch {
            result = .failure(error)
        }
        _ = await Child.run(["umount", "-l", path])
        return try result.get()
    }

    /// As `mount -o remount,OPTIONS`: "size=10m", "ro". Waits until no open file prevents the remount.
    public func remount(_ options: String) async {
        var exit = await Child.run(["mount", "-o", "remount,\(options)", path])
        let deadline = ContinuousClock.now + .seconds(60)
        while exit.status != 0, ContinuousClock.now < deadline { exit = await Child.run(["mount", "-o", "remount,\(options)", path]) }
        precondition(exit.status == 0, "remount \(options): \(exit.errors)")
    }

    /// Mounts the disk at `folder`, too, or unmounts it there.
    public func show(at folder: String, _ isShown: Bool) async {
        let exit = await Child.run(isShown ? ["mount", "--bind", path, folder] : ["umount", "-l", folder])
        precondition(exit.status == 0, "\(folder): \(exit.errors)")
    }

    /// Writes a file that leaves `bytes` free. A program that writes meanwhile may leave less.
    public func fill(leaving bytes: Int) {
        var space = statvfs()
        precondition(statvfs(path, &space) == 0)
        let free = Int(space.f_bavail) * Int(space.f_frsize)
        guard free > bytes else { return }
        let file = open("\(path)/filler-\(free)", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
        precondition(file >= 0, String(cString: strerror(errno)))
        defer { close(file) }
        let filler = [UInt8](repeating: 1, count: free - bytes)
        precondition(write(file, filler, filler.count) > 0 || errno == ENOSPC, String(cString: strerror(errno)))
    }
}
