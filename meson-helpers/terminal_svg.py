#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the recording of a terminal (asciinema's file format, version 2) as an SVG that plays without a script: `render`.

Each stretch of text is one element, which CSS shows while it is on the screen. So the text can be selected, and a browser without
animations, or whose user wants none, shows the last screen. The terminal understands the control sequences of `todoku`, and refuses
others. Used by meson-helpers/recording.
"""
import json
import re
import unicodedata
from xml.sax.saxutils import escape

PLAIN = ("", False)  # a colour and whether it is bold
BLANK = (" ", PLAIN)
TOKEN = re.compile(
    r"\x1b\[(?P<private>\??)(?P<numbers>[0-9;]*)(?P<final>[@-~])"  # CSI of ECMA-48
    r"|(?P<control>[\x00-\x1f\x7f-\x9f])|(?P<character>.)",
    re.DOTALL,
)
UNFINISHED = re.compile(r"\x1b(\[\??[0-9;]*)?\Z")
COLOURS = {31: "red", 32: "green", 33: "yellow", 39: ""}


class RecordingError(Exception):
    """A recording that cannot be drawn: a sentence."""


def width_of(character):
    """Columns of a character in a terminal."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class Screen:
    """What a terminal shows. The right half of a wide character is a cell with an empty text."""

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.cells = [[BLANK] * columns for _ in range(rows)]
        self.row = self.column = 0  # the column after the last one: the next character begins a line
        self.style = PLAIN
        self.cursor_is_shown = True
        self.rest = ""  # the beginning of a sequence whose end is still to come

    def feed(self, text):
        text = self.rest + text
        unfinished = UNFINISHED.search(text)
        self.rest = unfinished.group() if unfinished else ""
        for token in TOKEN.finditer(text, 0, len(text) - len(self.rest)):
            if token["character"]:
                self.put(token["character"])
            elif token["control"]:
                self.control(token["control"])
            else:
                self.sequence(token)

    def put(self, character):
        width = width_of(character)
        if width == 0:
            return self.join(character)
        if self.column + width > self.columns:
            self.column = 0
            self.line_feed()
        line = self.cells[self.row]
        for column in range(self.column, self.column + width):
            self.split(line, column)
        line[self.column] = (character, self.style)
        if width == 2:
            line[self.column + 1] = ("", self.style)
        self.column += width

    def join(self, mark):
        """Adds a mark without a width to the character before the cursor."""
        line, column = self.cells[self.row], self.column - 1
        if column > 0 and line[column][0] == "":
            column -= 1
        if column >= 0:
            line[column] = (line[column][0] + mark, line[column][1])

    @staticmethod
    def split(line, column):
        """Before a cell is overwritten, the other half of a wide character goes."""
        if line[column][0] == "":
            line[column - 1] = BLANK
        if column + 1 < len(line) and line[column + 1][0] == "":
            line[column + 1] = BLANK

    def line_feed(self):
        if self.row + 1 < self.rows:
            self.row += 1
        else:
            self.cells = self.cells[1:] + [[BLANK] * self.columns]

    def control(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.line_feed()
        elif character == "\b":
            self.column = max(0, min(self.column, self.columns - 1) - 1)
        else:
            raise RecordingError(f"the recording has the control character {character!r}, which this renderer does not know")

    def sequence(self, token):
        numbers = [int(number or 0) for number in token["numbers"].split(";")]
        final = token["private"] + token["final"]
        if final == "A":
            self.row = max(0, self.row - max(1, numbers[0]))
        elif final == "H":
            row, column = (numbers + [1])[:2]
            self.row = min(self.rows, max(1, row)) - 1
            self.column = min(self.columns, max(1, column)) - 1
        elif final == "J" and numbers == [0]:
            self.erase(self.row, self.column, self.columns)
            for row in range(self.row + 1, self.rows):
                self.erase(row, 0, self.columns)
        elif final == "K" and numbers == [0]:
            self.erase(self.row, self.column, self.columns)
        elif final == "m":
            for number in numbers:
                self.style = self.styled(number, token.group())
        elif final in ("?h", "?l") and numbers == [25]:
            self.cursor_is_shown = final == "?h"
        else:
            raise RecordingError(f"the recording has the sequence {token.group()!r}, which this renderer does not know")

    def styled(self, number, sequence):
        colour, is_bold = self.style
        if number == 0:
            return PLAIN
        if number in (1, 22):
            return (colour, number == 1)
        if number in COLOURS:
            return (COLOURS[number], is_bold)
        raise RecordingError(f"the recording has the sequence {sequence!r}, which this renderer does not know")

    def erase(self, row, first, end):
        line = self.cells[row]
        if first < end:
            self.split(line, first)
        line[first:end] = [BLANK] * (end - first)

    def pieces(self):
        """What is on the screen: a set of (row, column, columns, text, colour, is bold). A cursor has no text.

        A piece ends where the style changes, where wide characters begin or end, and at two blanks.
        """
        found = set()
        for row, line in enumerate(self.cells):
            begun, text, column_after, kind = 0, "", 0, None
            for column, (character, style) in enumerate(line):
                if character in ("", " "):
                    continue
                width = 2 if column + 1 < self.columns and line[column + 1][0] == "" else 1
                gap = column - column_after
                if text and kind == (style, width) and (gap == 0 or gap == 1 and width == 1):
                    text += " " * gap + character
                else:
                    if text:
                        found.add((row, begun, column_after - begun, text, *kind[0]))
                    begun, text, kind = column, character, (style, width)
                column_after = column + width
            if text:
                found.add((row, begun, column_after - begun, text, *kind[0]))
        if self.cursor_is_shown and self.column < self.columns:
            found.add((self.row, self.column, 1, "", *PLAIN))
        return frozenset(found)


def load(text):
    """Reads a recording.

    - Returns: its header, and its events: a time in seconds, a kind (`o` for output, `m` for a marker) and a text each.
    """
    try:
        header, *events = [json.loads(line) for line in text.splitlines() if line]
        if header["version"] != 2 or not all(1 <= header[key] <= 500 for key in ("width", "height")):
            raise RecordingError("it is not of version 2, or it has no size of 1 to 500 columns and lines")
        before = 0
        for time, kind, data in events:
            if time < before or kind not in ("o", "m") or not isinstance(data, str):
                raise RecordingError(f"the event {[time, kind, data]!r} is wrong")
            before = time
    except (ValueError, KeyError, TypeError) as error:
        raise RecordingError(f"it is not a recording of asciinema: {error}") from error
    return header, events


# MARK: Drawing

STEP = 0.1  # seconds: changes of a shorter time are one change
HOLD = 4  # seconds for which the last screen stays
CHARACTER, LINE, SIZE, BASE, MARGIN = 8.4, 19, 14, 14, 12  # pixels
FONTS = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono','Noto Sans Mono CJK JP','Noto Sans CJK JP',monospace"
LIGHT = {"ground": "#f6f8fa", "edge": "#d0d7de", "text": "#1f2328", "red": "#cf222e", "green": "#1a7f37", "yellow": "#9a6700"}
DARK = {"ground": "#161b22", "edge": "#30363d", "text": "#e6edf3", "red": "#ff7b72", "green": "#3fb950", "yellow": "#d29922"}


def stretches(header, events):
    """When each piece is on the screen.

    - Returns: (piece, first second, second after the last) each, and the length of the recording.
    """
    screen = Screen(header["width"], header["height"])
    shown, found = {}, []

    def change(second):
        pieces = screen.pieces()
        for piece in [piece for piece in shown if piece not in pieces]:
            found.append((piece, shown.pop(piece), second))
        for piece in pieces:
            shown.setdefault(piece, second)

    step = 0
    for time, kind, data in events:
        if kind != "o":
            continue
        if int(time / STEP) > step:
            change(step * STEP)
            step = int(time / STEP)
        screen.feed(data)
    change(step * STEP)
    length = step * STEP + HOLD
    found.extend((piece, begun, length) for piece, begun in shown.items())
    # By time, then from the top: the same recording gives the same file.
    found.sort(key=lambda stretch: (stretch[1], stretch[2], stretch[0]))
    return [stretch for stretch in found if stretch[1] < stretch[2]], length


def short(number):
    return f"{number:.2f}".rstrip("0").rstrip(".")


def colours(palette):
    rules = [f".ground{{fill:{palette['ground']};stroke:{palette['edge']}}}", f"text,.cursor{{fill:{palette['text']}}}"]
    rules += [f".{name}{{fill:{palette[name]}}}" for name in ("red", "green", "yellow")]
    return "".join(rules)


def element(stretch, length, durations):
    (row, column, columns, text, colour, is_bold), begun, end = stretch
    classes, style = [], ""
    if begun > 0 or end < length:
        duration = durations.setdefault(round(end - begun, 2), f"t{len(durations)}")
        classes += ["a", duration] + (["last"] if end == length else [])
        # A delay below zero: the animation runs from the first moment on, and hides what is still to come.
        style = f' style="animation-delay:{short(begun - length)}s"' if begun > 0 else ""
    x, y = short(column * CHARACTER), row * LINE
    if not text:
        names = " ".join(["cursor"] + classes)
        return f'<rect class="{names}"{style} x="{x}" y="{y}" width="{CHARACTER}" height="{LINE}"/>'
    classes += [colour] * bool(colour) + ["bold"] * is_bold
    names = f' class="{" ".join(classes)}"' if classes else ""
    # The columns are kept with any font. Blocks of a bar are stretched, so that there is no gap between them.
    fit = ' lengthAdjust="spacingAndGlyphs"' if "█" in text or "░" in text else ""
    return f'<text{names}{style} x="{x}" y="{y + BASE}" textLength="{short(columns * CHARACTER)}"{fit}>{escape(text)}</text>'


def render(text):
    """The SVG of a recording."""
    header, events = load(text)
    found, length = stretches(header, events)
    rows = max((piece[0] for piece, _, _ in found), default=0) + 1
    width, height = header["width"] * CHARACTER + 2 * MARGIN, rows * LINE + 2 * MARGIN
    durations = {}
    found.sort(key=lambda stretch: bool(stretch[0][3]))  # cursors lie below texts
    elements = [element(stretch, length, durations) for stretch in found]
    shows = "".join(
        f".{name}{{animation-name:{name}}}@keyframes {name}{{0%{{visibility:visible}}{short(100 * duration / length)}%,to{{visibility:hidden}}}}"
        for duration, name in durations.items()
    )
    style = (
        f"text{{font:{SIZE}px {FONTS};white-space:pre}}.bold{{font-weight:bold}}.cursor{{opacity:.4}}{colours(LIGHT)}"
        f"@media(prefers-color-scheme:dark){{{colours(DARK)}}}"
        f".a{{visibility:hidden;animation:{short(length)}s step-end infinite}}.last{{visibility:visible}}{shows}"
        "@media(prefers-reduced-motion:reduce){.a{animation:none!important}}"
    )
    title = escape(header.get("title", "A terminal"))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{short(width)}" height="{height}" viewBox="0 0 {short(width)} {height}" role="img">',
        f"<title>{title}</title>",
        f"<style>{style}</style>",
        f'<rect class="ground" x=".5" y=".5" width="{short(width - 1)}" height="{height - 1}" rx="6"/>',
        f'<g transform="translate({MARGIN} {MARGIN})">',
        *elements,
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
