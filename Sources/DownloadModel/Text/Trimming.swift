extension BidirectionalCollection {
    /// Without the elements at both ends for which `isPadding` is true.
    package func trimming(_ isPadding: (Element) -> Bool) -> SubSequence {
        let rest = drop(while: isPadding)
        return rest.lastIndex { !isPadding($0) }.map { rest[...$0] } ?? rest
    }
}

extension BidirectionalCollection where Element == UInt8 {
    /// Without the spaces and tabs at both ends.
    package var trimmingBlanks: SubSequence { trimming(\.isBlank) }
}

extension StringProtocol {
    /// Without the spaces and tabs at both ends.
    package var trimmingBlanks: SubSequence { trimming { $0 == " " || $0 == "\t" } }
}
