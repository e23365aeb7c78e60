// Inlinable, because other rooms call these functions for each field of a response and each line of a list. A generic function that is not
// inlinable is not specialized in another room, and then looks up each step of the collection at run time.

extension BidirectionalCollection {
    /// Without the elements at both ends for which `isPadding` is true.
    @inlinable package func trimming(_ isPadding: (Element) -> Bool) -> SubSequence {
        let rest = drop(while: isPadding)
        return rest.lastIndex { !isPadding($0) }.map { rest[...$0] } ?? rest
    }
}

extension BidirectionalCollection where Element == UInt8 {
    /// Without the spaces and tabs at both ends.
    @inlinable package var trimmingBlanks: SubSequence { trimming { $0 == 0x20 || $0 == 0x09 } }
}

extension StringProtocol {
    /// Without the spaces and tabs at both ends.
    @inlinable package var trimmingBlanks: SubSequence { trimming { $0 == " " || $0 == "\t" } }
}
