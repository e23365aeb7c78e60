/// How long the service may take to end after a signal. A program that ends the service must wait at least as long (todokud(8), SIGNALS).
package enum EndPatience {
    /// How many seconds the end waits for toasts, checkpoints and the last commit. The time of `calls` does not count.
    package static let saving = 10
    /// How long after the signal the end waits for the work on calls. On a busy machine, a change of many downloads takes seconds of
    /// processor time. The manager of a session waits longer: systemd 90 s, on Fedora 45 s.
    package static let calls: Duration = .seconds(30)
    /// Both, and time for the steps between them on a busy machine.
    package static let longest: Duration = calls + .seconds(saving + 10)
}
