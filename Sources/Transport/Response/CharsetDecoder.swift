internal import CSystem
public import DownloadModel
internal import Glibc

/// Decodes `bytes` in `charset` (one of iconv(3)'s names); nil if the charset is unknown or a byte is invalid in it.
public let iconvDecoder: ForeignDecoder = { charset, bytes in
    let converter = iconv_open("UTF-8", charset)
    guard let converter, Int(bitPattern: converter) != -1 else { return nil }
    defer { iconv_close(converter) }
    var input = bytes.map { CChar(bitPattern: $0) }
    var output = [CChar](repeating: 0, count: bytes.count * 4 + 16)
    let length: Int? = input.withUnsafeMutableBufferPointer { input in
        output.withUnsafeMutableBufferPointer { output in
            var from = input.baseAddress
            var to = output.baseAddress
            var (left, room) = (input.count, output.count)
            let all = room
            guard iconv(converter, &from, &left, &to, &room) != Int(bitPattern: UInt.max), left == 0,
                iconv(converter, nil, nil, &to, &room) != Int(bitPattern: UInt.max)
            else { return nil }
            return all - room
        }
    }
    return length.flatMap { String(validating: output[..<$0].map { UInt8(bitPattern: $0) }, as: UTF8.self) }
}
