internal import Extraction
internal import Transport

/// The process that unpacks archives: todokud starts itself again, with this argument.
public enum UnpackingProgram {
    public static var argument: String { UnpackingChild.argument }

    public static func run() -> Never { UnpackingChild.run(decode: iconvDecoder) }
}
