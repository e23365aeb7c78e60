internal import DownloadModel
internal import TodokuClient

extension DownloadDescription {
    /// Keys are the contract's words. Numbers are bytes, bytes per second, or microseconds since the Unix epoch. null: unknown or none.
    var json: [(String, JSON)] {
        [
            ("download", .string(reference.description)), ("object-path", .string(reference.path)), ("url", .string(url)),
            ("app", .string(app)), ("tag", .string(tag)), ("state", .string(state.name)), ("wait-reason", JSON(waitReason)),
            ("wait-until", JSON(waitUntil?.microseconds)), ("ahead", .unsigned(UInt64(ahead))), ("received", .unsigned(received)),
            ("total", JSON(total)),
            ("fraction", JSON(fraction)), ("extracted", JSON(state == .extracting ? extracted : nil)), ("speed", .unsigned(speed)),
            ("file-name", JSON(fileName)), ("media-type", JSON(mediaType)),
            ("path", JSON(path)), ("unchanged", .bool(isUnchanged)), ("error", error.map { $0.json } ?? .null),
            ("proved-by", JSON(provedBy)),
            ("attempts", .unsigned(UInt64(attempts))),
            ("connections", .unsigned(UInt64(connections))), ("sources", .array(sources.map { .object($0.json) })),
            ("queued-at", JSON(queuedAt?.microseconds)),
            ("started-at", JSON(startedAt?.microseconds)), ("ended-at", JSON(endedAt?.microseconds)), ("batch", JSON(batch)),
            ("priority", .integer(Int64(priority))), ("speed-limit", JSON(speedLimit)),
        ]
    }
}

extension DownloadDescription.Source {
    var json: [(String, JSON)] {
        [("url", .string(url)), ("received", .unsigned(received)), ("speed", .unsigned(speed)), ("left", JSON(left))]
    }
}

extension DownloadError {
    var json: JSON {
        .object([
            ("name", .string(name)), ("message", .string(message)), ("http-status", JSON(httpStatus)), ("host", JSON(host)),
            ("retryable", .bool(isRetryable)),
        ])
    }
}
