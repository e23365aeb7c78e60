internal import EventLoop
internal import Extraction
internal import Logging

/// Logs once, at the first archive, which restrictions confine the process that unpacks.
@BusActor enum ConfinementLog {
    private static var told: Confinement?

    /// Call when an extraction has ended.
    static func tell(_ control: ExtractionControl, _ log: Logger) {
        guard let confinement = control.confinement, confinement != told else { return }
        told = confinement
        let missing = Confinement.all.subtracting(confinement)
        let metadata: Logger.Metadata = ["by": "\(confinement.text)", "missing": "\(missing.text)"]
        if confinement.isEnough {
            log.notice("archives are unpacked by a confined process", metadata: metadata)
        } else {
            log.warning("archives are unpacked by a process that is not confined enough", metadata: metadata)
        }
    }
}
