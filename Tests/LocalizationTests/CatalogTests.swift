import DownloadModel
import Testing

@testable import Localization

/// An environment of these variables alone.
private func environment(_ variables: [String: String]) -> (String) -> String? { { variables[$0] } }

@Suite struct `A catalogue` {
    @Test func `speaks Japanese, or the English of the sources`() {
        #expect(Catalog(.japanese).text("Download complete") == "ダウンロードが完了しました")
        #expect(Catalog(.english).text("Download complete") == "Download complete")
        #expect(Catalog(.japanese).text("never translated %1$s", "x") == "never translated x")
    }

    @Test(
        arguments: [
            (["LANG": "ja_JP.UTF-8"], .japanese), (["LANG": "ja"], .japanese), (["LANG": "de_DE.UTF-8"], .english), ([:], .english),
            (["LANG": "en_US.UTF-8"], .english), (["LANG": "C.UTF-8", "LANGUAGE": "ja"], .japanese),
            // As in gettext, "C" selects the texts of the sources, whatever LANGUAGE says.
            (["LANG": "C", "LANGUAGE": "ja"], .english), (["LANGUAGE": "ja"], .english),
            (["LANG": "ja_JP.UTF-8", "LC_ALL": "C"], .english), (["LANG": "ja_JP.UTF-8", "LC_ALL": "POSIX", "LANGUAGE": "ja"], .english),
            (["LANG": "en_US.UTF-8", "LC_MESSAGES": "ja_JP.UTF-8"], .japanese), (["LANG": "ja_JP", "LC_MESSAGES": "de_DE"], .english),
            (["LANG": "ja_JP.UTF-8", "LC_ALL": "", "LANGUAGE": ""], .japanese),
            (["LANG": "de_DE.UTF-8", "LANGUAGE": "fr:ja_JP:en"], .japanese), (["LANG": "ja_JP.UTF-8", "LANGUAGE": "en:ja"], .english),
            (["LANG": "ja_JP.UTF-8", "LANGUAGE": "de"], .english), (["LANG": "jam_JM.UTF-8"], .english),
            (["LANG": "ja_JP.UTF-8", "LC_NUMERIC": "C"], .japanese),
        ] as [([String: String], Language)])
    func `takes the session’s language from its environment if it is auto`(variables: [String: String], spoken: Language) {
        let catalog = Catalog(.auto, environment: environment(variables))
        #expect(catalog.spoken == spoken)
        #expect(catalog.language == .auto)
        #expect(catalog.text("Open") == (spoken == .japanese ? "開く" : "Open"))
        // A set language ignores the session.
        #expect(Catalog(.english, environment: environment(variables)).spoken == .english)
        #expect(Catalog(.japanese, environment: environment(variables)).spoken == .japanese)
    }

    @Test func `puts arguments where they are named, and looks at none of them`() {
        let catalog = Catalog(.english)
        #expect(catalog.text("%2$s of %1$s, %2$s", "a", "b") == "b of a, b")
        #expect(catalog.text("%1$s %2$s", "%2$s", "%1$s") == "%2$s %1$s")
        #expect(catalog.text("%1$s", "%1$s %%") == "%1$s %%")
        #expect(catalog.text("100 %% of %1$s", "x") == "100 % of x")
        #expect(catalog.text("100 % %3$s %0$s %x %1$d %", "x") == "100 % %3$s %0$s %x %1$d %")
        #expect(catalog.text("") == "")
    }

    @Test(
        arguments: [
            (0, "0 downloads complete", "0件のダウンロードが完了しました"), (1, "1 download complete", "1件のダウンロードが完了しました"),
            (2, "2 downloads complete", "2件のダウンロードが完了しました"), (10_000, "10,000 downloads complete", "10,000件のダウンロードが完了しました"),
        ] as [(UInt64, String, String)])
    func `counts by the forms of the language`(count: UInt64, english: String, japanese: String) {
        for (language, text) in [(Language.english, english), (.japanese, japanese)] {
            #expect(Catalog(language).text("%1$s download complete", "%1$s downloads complete", count: count) == text)
        }
    }

    @Test func `names each error in each language, shortly`() {
        for language in [Language.japanese, .english] {
            let catalog = Catalog(language)
            let reasons = ErrorName.allCases.map { catalog.reason($0) }
            #expect(Set(reasons).count == reasons.count)
            for reason in reasons {
                #expect(reason.hasSuffix(language == .japanese ? "。" : "."))
                #expect(reason.unicodeScalars.contains { $0.value > 0x3000 } == (language == .japanese), "\(reason)")
            }
            #expect(catalog.reason(.httpStatus, httpStatus: 404).contains("HTTP 404"))
            #expect(catalog.reason(.network, httpStatus: 404) == catalog.reason(.network))
        }
    }
}

@Suite struct `Amounts for people` {
    @Test(
        arguments: [
            (0, "0 B"), (512, "512 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_572_864, "1.5 MiB"), (.max, "16.0 EiB"),
        ] as [(ByteCount, String)])
    func `give sizes in binary multiples`(bytes: ByteCount, text: String) {
        for language in Language.allCases { #expect(Catalog(language, environment: environment([:])).size(bytes) == text) }
    }

    @Test func `give speeds a second, percentages and pairs`() {
        let (english, japanese) = (Catalog(.english), Catalog(.japanese))
        #expect(english.speed(3_355_443) == "3.2 MiB/s")
        #expect(english.speed(0) == "0 B/s")
        #expect(japanese.percent(42) == "42 %")
        #expect(english.size(1024, of: 2048) == "1.0 KiB of 2.0 KiB")
        #expect(japanese.size(1024, of: 2048) == "1.0 KiB / 2.0 KiB")
        #expect(english.size(1024, of: nil) == "1.0 KiB")
        #expect(english.list(["a", nil, "b", "c"]) == "a, b, c")
        #expect(japanese.list(["a", nil, "b", "c"]) == "a、b、c")
        #expect(english.list([nil]) == "")
    }

    @Test(
        arguments: [
            (.zero, "0 s", "0秒"), (.seconds(-5), "0 s", "0秒"), (.milliseconds(1), "1 s", "1秒"), (.seconds(45), "45 s", "45秒"),
            (.milliseconds(59_001), "1 min", "1分"), (.seconds(125), "2 min 5 s", "2分5秒"), (.seconds(3600), "1 h", "1時間"),
            (.seconds(3780), "1 h 3 min", "1時間3分"), (.seconds(86_399), "23 h 59 min", "23時間59分"), (.seconds(86_400), "1 d", "1日"),
            (.seconds(187_200), "2 d 4 h", "2日4時間"), (.seconds(Int64.max), "106,751,991,167,300 d 15 h", "106,751,991,167,300日15時間"),
        ] as [(Duration, String, String)])
    func `give durations in their two largest units`(duration: Duration, english: String, japanese: String) {
        #expect(Catalog(.english).duration(duration) == english)
        #expect(Catalog(.japanese).duration(duration) == japanese)
    }

    @Test func `are written as in the session’s locale, also where the texts are English`() throws {
        // "C" has no groups. Without an installed locale, numbers are written as in English.
        #expect(Catalog(.auto, environment: environment(["LANG": "C.UTF-8"])).count(12_345) == "12345")
        #expect(Catalog(.auto, environment: environment([:])).count(12_345) == "12345")
        #expect(Catalog(.auto, environment: environment(["LANG": "xx_XX.UTF-8"])).count(12_345) == "12,345")
        #expect(Catalog(.english, environment: environment(["LANG": "C"])).count(12_345) == "12,345")
        #expect(Catalog(.auto, environment: environment(["LANG": "ja_JP.UTF-8", "LC_NUMERIC": "C"])).count(12_345) == "12345")
        #expect(NumberStyle(locale: "xx_XX.UTF-8") == nil)
        #expect(try #require(NumberStyle(locale: "C.UTF-8")) == .plain)
    }

    @Test(
        arguments: [
            (0, "0"), (999, "999"), (1000, "1,000"), (123_456, "123,456"), (1_234_567, "1,234,567"), (.max, "18,446,744,073,709,551,615"),
        ]
            as [(UInt64, String)])
    func `group the digits of counts`(count: UInt64, text: String) { #expect(NumberStyle().grouped(count) == text) }

    @Test func `group as locales do that group otherwise`() {
        #expect(NumberStyle(point: ",", separator: ".", groups: [3]).grouped(1_234_567) == "1.234.567")
        #expect(NumberStyle(point: ".", separator: ",", groups: [3, 2]).grouped(123_456_789) == "12,34,56,789")
        #expect(NumberStyle(point: ".", separator: ",", groups: [3, 0]).grouped(1_234_567) == "1234,567")
        #expect(NumberStyle(point: ",", separator: "\u{202F}", groups: []).grouped(1_234_567) == "1234567")
    }
}

@Suite struct `A plural rule` {
    private func forms(_ header: String, _ counts: [UInt64]) -> [Int]? { PluralRule(header).map { rule in counts.map { rule.form($0) } } }

    @Test func `reads the expressions for one form and for two`() {
        #expect(forms(" nplurals=1; plural=0;", [0, 1, 2]) == [0, 0, 0])
        #expect(forms(" nplurals=2; plural=(n != 1);", [0, 1, 2]) == [1, 0, 1])
        #expect(forms("nplurals=2; plural=n>1;", [0, 1, 2]) == [0, 0, 1])
    }

    @Test(arguments: ["", "nplurals=1;", "plural=;", "plural=n n;", "nplurals=3; plural=(n==1 ? 0 : n==2 ? 1 : 2);", "plural=1;"])
    func `is refused if its expression is not known`(header: String) { #expect(PluralRule(header) == nil) }
}
