import DownloadModel
import TestSupport
import Testing

@testable internal import PartFiles
@testable internal import TransferEngine

/// The file systems of tests allow names of 255 bytes.
@Suite(.timeLimit(.minutes(5))) struct `A name that the file system does not allow` {
    private static let file = patternBytes(1_000_000)
    private let long = String(repeating: "n", count: 300)

    private func isRefused(_ end: TransferEnd) -> Bool {
        guard let failure = end.failure, failure.name == .writeFailed, !failure.isRetryable, failure.wait == nil else { return false }
        return failure.message.contains("“\(long)” is too long") && failure.message.contains("if-exists")
    }

    @Test(arguments: [.fail, .skip, .replace] as [ExistingFilePolicy])
    func `ends the transfer before it asks, if the name may not be cut`(policy: ExistingFilePolicy) async throws {
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let fixture = await EngineFixture()
        let end = try await fixture.run(server.url("/x")) { ($0.fileName, $0.ifExists) = (long, policy) }
        #expect(isRefused(end), "\(end)")
        #expect(server.requests.isEmpty && listFolder(fixture.folder.path) == [])
    }

    @Test func `does not end a transfer whose file may get any free name`() async throws {
        let server = ScriptedServer { request, reply in reply.serve(Self.file, for: request) }
        let fixture = await EngineFixture()
        #expect(try await fixture.run(server.url("/x")) { $0.fileName = long }.complete?.size == 1_000_000)
    }

    /// As on a disk that was replaced by one with shorter names.
    @Test func `ends a transfer that resumes under this name before its body, and keeps the bytes`() async throws {
        let server = ScriptedServer { request, reply in
            guard request.number == 0 else { return reply.serve(Self.file, for: request, entityTag: "\"v1\"") }
            reply.head(200, ["ETag": "\"v1\""], length: Self.file.count)
            reply.send(Self.file[..<400_000])
            reply.close()
        }
        let fixture = await EngineFixture()
        let resume = try #require(try await fixture.run(server.url("/x")).resume)
        #expect(resume.written == 400_000)
        let end = try await fixture.run(server.url("/x")) { ($0.knownName, $0.ifExists, $0.resume) = (long, .fail, resume) }
        #expect(isRefused(end), "\(end)")
        #expect(server.requests.count == 2 && end.resume?.written == 400_000 && fixture.part?.count == 400_000)
    }
}
