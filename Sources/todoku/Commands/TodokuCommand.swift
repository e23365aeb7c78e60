internal import ArgumentParser

struct TodokuCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "todoku",
        abstract: "Download files with the session's download service.",
        discussion: """
            The service downloads; this command queues, steers and shows. It may exit at any time: queued downloads continue, even after a new \
            login. You name a download by its number, by APP/TOKEN if it has a token, or by its object path. “todoku --version” shows the \
            version.

            EXAMPLES:
              todoku get https://example.org/file.iso
              todoku add --directory ~/Videos https://example.org/film.webm
              todoku list
              todoku watch

            EXIT STATUS:
              0    every download finished, or the command succeeded
              1    a download failed, or was cancelled or removed; doctor: something is wrong
              2    the command line is not valid
              3    the service refused the call, or cannot be reached
              4    fetch --exit-code: nothing new was downloaded
              5    a command of --exec or --exec-failed failed
              130  Ctrl-C was pressed; the downloads continue
            """,
        subcommands: [
            GetCommand.self, AddCommand.self, BatchCommand.self, MetalinkCommand.self, FetchCommand.self, ListCommand.self,
            ShowCommand.self,
            WatchCommand.self,
            WaitCommand.self, PauseCommand.self, ResumeCommand.self, CancelCommand.self, RetryCommand.self, RenewCommand.self,
            MoveCommand.self, ChangeCommand.self,
            RemoveCommand.self, OpenCommand.self, WhyCommand.self, HostCommand.self, LimitCommand.self, SettingsCommand.self,
            AssetCommand.self, RehearseCommand.self, StatsCommand.self, DoctorCommand.self, BackupCommand.self, ResetCommand.self,
            RestoreCommand.self, CompleteCommand.self,
        ])
}
