internal import ArgumentParser

struct TodokuCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "todoku",
        abstract: "Download files by the session's download service.",
        discussion: """
            The service fetches; this command asks and shows. It may end at any time: what is queued goes on, also after a new login. A \
            download is named by its number, by APP/TOKEN where it has a token, or by its object path.

            EXAMPLES:
              todoku get https://example.org/file.iso
              todoku add --directory ~/Videos https://example.org/film.webm
              todoku list
              todoku watch

            EXIT STATUS:
              0    everything finished, or was done
              1    a download failed, or was cancelled or removed
              2    the command line is wrong
              3    the service refused, or cannot be reached
              4    fetch --exit-code: nothing new has come
              130  ended by Ctrl-C; the downloads go on unless it was pressed twice
            """,
        version: "todoku 0.1.0",
        subcommands: [
            GetCommand.self, AddCommand.self, BatchCommand.self, FetchCommand.self, ListCommand.self, ShowCommand.self, WatchCommand.self,
            WaitCommand.self, PauseCommand.self, ResumeCommand.self, CancelCommand.self, RetryCommand.self, RenewCommand.self,
            MoveCommand.self,
            RemoveCommand.self, OpenCommand.self, WhyCommand.self, HostCommand.self, LimitCommand.self, SettingsCommand.self,
        ])
}
