internal import Glibc

/// A folder that mounts a small disk when it is first entered, by the kernel's autofs. Only root may mount; `isPossible` tells.
public struct Automount: Sendable {
    public static func isPossible() async -> Bool {
        guard geteuid() == 0 else { return false }
        return (try? await with { _ in true }) == true
    }

    public let path: String
    private let daemon: Child

    /// Whether the disk has been mounted.
    public var isMounted: Bool { daemon.output.contains("mounted") }

    /// Sets up the folder, runs `body`, and removes the folder. nil if this is impossible here.
    public static func with<R: Sendable>(_ body: (Automount) async throws -> R) async throws -> R? {
        let folder = TemporaryFolder("todoku-automount")
        let path = folder.makeFolder("disk")
        let daemon = Child(["python3", "-c", program, path])
        guard await eventually({ daemon.output.contains("ready") || !daemon.isRunning }), daemon.isRunning else { return nil }
        let result: Result<R, any Error>
        do {
            result = .success(try await body(Automount(path: path, daemon: daemon)))
        } catch {
            result = .failure(error)
        }
        daemon.signal(SIGKILL)
        _ = await daemon.wait()
        for _ in 0..<2 { _ = await Child.run(["umount", "-l", path]) }  // the disk, and the autofs below it
        return try result.get()
    }

    /// The daemon's side of one direct mount (Documentation/filesystems/autofs.rst).
    private static let program = """
        import ctypes, fcntl, os, signal, struct, sys

        libc = ctypes.CDLL(None, use_errno=True)

        def mount(source, kind, options):
            if libc.mount(source.encode(), sys.argv[1].encode(), kind.encode(), 0, options.encode()) != 0:
                sys.exit("mount %s: %s" % (kind, os.strerror(ctypes.get_errno())))

        os.setpgid(0, 0)  # this process group goes there without mounting
        reading, writing = os.pipe()
        mount("todoku-test", "autofs", "fd=%d,pgrp=%d,minproto=5,maxproto=5,direct" % (writing, os.getpgrp()))
        os.close(writing)
        control = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
        print("ready", flush=True)
        kind, token = struct.unpack_from("iI", os.read(reading, 4096), 4)
        if kind == 5:  # autofs_ptype_missing_direct
            mount("tmpfs", "tmpfs", "mode=0777,size=1m")
            print("mounted", flush=True)
            fcntl.ioctl(control, 0x9360, token)  # AUTOFS_IOC_READY
        signal.pause()
        """
}
