//! What a terminal is told: nothing that steers it, in lines and columns that fit its width, in colours only where it has them.

use std::env;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

/// What is coloured, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Something is wrong.
    Error,
    /// Something is doubtful.
    Warning,
    /// Headings.
    Strong,
    /// What matters less.
    Faint,
}

/// How an output is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; none in a pipe, where nothing is broken or cut.
    pub width: Option<usize>,
    /// Whether it is coloured.
    pub colour: bool,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Words.
    Left(&'static str),
    /// Amounts.
    Right(&'static str),
    /// Names from outside: cut in their middle where the terminal is too narrow.
    Name(&'static str),
    /// Sentences, only as the last column: broken between words where the terminal is too narrow.
    Text(&'static str),
}

/// A text that is being put together. Nothing gets into it unescaped.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    style: Style,
    text: String,
}

/// A paragraph is not made narrower or wider than this: longer lines are hard to read.
const NARROWEST: usize = 40;
const WIDEST: usize = 120;
/// A name and a sentence in a table keep at least so much room.
const LEAST: usize = 16;
/// Between two columns.
const GAP: usize = 2;

/// Whether a stream gets colours: a terminal that is not dumb, and `NO_COLOR` not set.
pub fn is_coloured(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !set("NO_COLOR") && !is_dumb
}

/// The text in a colour.
pub fn painted(text: &str, paint: Paint, colour: bool) -> String {
    if !colour {
        return text.to_string();
    }
    let code = match paint {
        Paint::Error => "1;31",
        Paint::Warning => "1;33",
        Paint::Strong => "1",
        Paint::Faint => "2",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// A text without anything that steers a terminal: control characters, and those that turn the direction of writing or
/// are not seen, are shown as what they are.
pub fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        let steers = letter.is_control()
            || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
        match letter {
            '\n' | '\t' => shown.push(' '),
            letter if steers => shown.extend(letter.escape_unicode()),
            letter => shown.push(letter),
        }
    }
    shown
}

/// Lines of at most so many characters; a word that is longer has a line of its own. At least one line.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let joined = line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && joined > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// Columns of a terminal; none if it is no terminal.
fn columns(stream: &impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

impl Style {
    /// That of stdout.
    pub fn of_stdout() -> Self {
        Self::of(&io::stdout())
    }

    /// That of stderr.
    pub fn of_stderr() -> Self {
        Self::of(&io::stderr())
    }

    fn of(stream: &(impl AsFd + IsTerminal)) -> Self {
        Self {
            width: columns(stream),
            colour: is_coloured(stream),
        }
    }
}

impl Screen {
    /// An empty screen.
    pub const fn new(style: Style) -> Self {
        Self {
            style,
            text: String::new(),
        }
    }

    /// What was put together.
    pub fn into_text(self) -> String {
        self.text
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.text.push('\n');
    }

    /// A line that what follows belongs to.
    pub fn heading(&mut self, text: &str) {
        self.paragraph("", text, Some(Paint::Strong));
    }

    /// Text behind a label, broken between words; further lines begin under the first one's text.
    pub fn line(&mut self, label: &str, text: &str) {
        self.paragraph(label, text, None);
    }

    /// The same in a colour.
    pub fn paragraph(&mut self, label: &str, text: &str, paint: Option<Paint>) {
        self.behind(label, None, text, paint);
    }

    /// The same behind a label in a colour; a gap parts them.
    pub fn labelled(&mut self, label: &str, paint: Paint, text: &str) {
        self.behind(&format!("{label} "), Some(paint), text, None);
    }

    fn behind(&mut self, label: &str, of_label: Option<Paint>, text: &str, of_text: Option<Paint>) {
        let colour = self.style.colour;
        let shown = |text: &str, paint: Option<Paint>| {
            paint.map_or_else(|| text.to_owned(), |paint| painted(text, paint, colour))
        };
        let indent = label.chars().count();
        let text = plain(text);
        let lines = match self.style.width {
            Some(width) => wrapped(&text, width.clamp(NARROWEST, WIDEST).saturating_sub(indent)),
            None => vec![text],
        };
        let mut start = shown(label, of_label);
        for line in lines {
            self.text.push_str(&start);
            self.text.push_str(&shown(&line, of_text));
            self.text.push('\n');
            start = " ".repeat(indent);
        }
    }

    /// Rows under a head. A column that has nothing to say in any row is left out.
    pub fn table(&mut self, columns: &[Column], rows: &[Vec<String>]) {
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| plain(cell)).collect())
            .collect();
        let says = |column: usize| {
            rows.is_empty()
                || rows
                    .iter()
                    .any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()))
        };
        let shown: Vec<usize> = (0..columns.len()).filter(|&column| says(column)).collect();
        let layout = self.layout(columns, &rows, &shown);
        let head: Vec<String> = columns
            .iter()
            .map(|column| column.head().to_owned())
            .collect();
        for line in layout.lines(&head) {
            let line = painted(&line, Paint::Strong, self.style.colour);
            self.text.push_str(&line);
            self.text.push('\n');
        }
        for line in rows.iter().flat_map(|row| layout.lines(row)) {
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }

    fn layout(&self, columns: &[Column], rows: &[Vec<String>], shown: &[usize]) -> Layout {
        let widest = |&column: &usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let cells = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            (
                column,
                columns[column],
                cells.max(columns[column].head().len()),
            )
        };
        let mut widths: Vec<(usize, Column, usize)> = shown.iter().map(widest).collect();
        let gaps = GAP * widths.len();
        if let Some(width) = self.style.width {
            // Sentences give way first, then names; amounts never.
            for gives in [Column::is_text, Column::is_name] {
                let total = gaps + widths.iter().map(|(.., width)| width).sum::<usize>();
                let mut over = total.saturating_sub(width);
                for (_, _, width) in widths.iter_mut().filter(|(_, column, _)| gives(*column)) {
                    let narrower = (*width).saturating_sub(over).max((*width).min(LEAST));
                    over -= (*width - narrower).min(over);
                    *width = narrower;
                }
            }
        }
        Layout(widths)
    }
}

impl Column {
    const fn head(&self) -> &'static str {
        match self {
            Self::Left(head) | Self::Right(head) | Self::Name(head) | Self::Text(head) => head,
        }
    }

    const fn is_text(self) -> bool {
        matches!(self, Self::Text(_))
    }

    const fn is_name(self) -> bool {
        matches!(self, Self::Name(_))
    }
}

/// The columns that are shown, with their widths.
struct Layout(Vec<(usize, Column, usize)>);

impl Layout {
    /// A row in as many lines as its sentence needs.
    fn lines(&self, row: &[String]) -> Vec<String> {
        let mut start = String::new();
        for &(column, kind, width) in &self.0 {
            let cell = row.get(column).map_or("", String::as_str);
            start.push_str(&" ".repeat(GAP));
            let shown = match kind {
                Column::Left(_) => format!("{cell:<width$}"),
                Column::Right(_) => format!("{cell:>width$}"),
                Column::Name(_) => format!("{:<width$}", cut(cell, width)),
                Column::Text(_) => return sentence(&start, cell, width),
            };
            start.push_str(&shown);
        }
        vec![start.trim_end().to_owned()]
    }
}

/// A sentence behind the rest of its row; further lines begin under the first one's text.
fn sentence(start: &str, text: &str, width: usize) -> Vec<String> {
    let indent = " ".repeat(start.chars().count());
    let starts = std::iter::once(start).chain(std::iter::repeat(indent.as_str()));
    let lines = starts.zip(wrapped(text, width));
    lines
        .map(|(start, line)| format!("{start}{line}").trim_end().to_owned())
        .collect()
}

/// A name in at most so many characters: its beginning and its end tell names apart better than its middle.
fn cut(name: &str, width: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= width || width == 0 {
        return name.to_owned();
    }
    let front = (width - 1) / 2;
    let back = letters.len() - (width - 1 - front);
    let (front, back) = (letters[..front].iter(), letters[back..].iter());
    front.chain(std::iter::once(&'…')).chain(back).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_terminal_is_not_steered() {
        for (text, expected) in [
            ("a\x1b[31mb", "a\\u{1b}[31mb"),
            ("a\nb\tc", "a b c"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("abc\u{202e}cba", "abc\\u{202e}cba"),
            ("soft\u{ad}hyphen \u{e0041}", "soft\\u{ad}hyphen \\u{e0041}"),
            ("größer – 5 %", "größer – 5 %"),
        ] {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn a_name_loses_its_middle() {
        for (width, expected) in [(10, "abcdefghij"), (9, "abcd…ghij"), (4, "a…ij"), (1, "…")]
        {
            assert_eq!(cut("abcdefghij", width), expected);
        }
    }

    fn screen(width: Option<usize>, rows: &[[&str; 4]]) -> String {
        let mut screen = Screen::new(Style {
            width,
            colour: false,
        });
        let columns = [
            Column::Name("NAME"),
            Column::Right("USES"),
            Column::Left("WISH"),
            Column::Text("STATE"),
        ];
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(ToString::to_string).collect())
            .collect();
        screen.table(&columns, &rows);
        screen.into_text()
    }

    #[test]
    fn a_table_is_as_wide_as_it_must_be_and_as_narrow_as_the_terminal() {
        let rows = [
            ["short", "9.0Mi", "", "clear"],
            [
                "a-name-of-more-than-forty-characters-in-all",
                "100Mi",
                "",
                "one two three four five six",
            ],
        ];
        let wide = "  NAME                                          USES  STATE\n  short                                        9.0Mi  clear\n  a-name-of-more-than-forty-characters-in-all  100Mi  one two three four five six\n";
        assert_eq!(screen(None, &rows), wide);
        assert_eq!(screen(Some(200), &rows), wide);
        let narrow = "  NAME                        USES  STATE\n  short                      9.0Mi  clear\n  a-name-of-mo…cters-in-all  100Mi  one two three\n                                    four five six\n";
        assert_eq!(screen(Some(52), &rows), narrow);
        assert_eq!(screen(None, &[]), "  NAME  USES  WISH  STATE\n");
    }

    proptest! {
        #[test]
        fn nothing_that_steers_is_left(text in any::<String>()) {
            prop_assert!(!plain(&text).chars().any(char::is_control));
        }

        #[test]
        fn a_row_fits_unless_its_columns_cannot(name in "[a-z]{0,90}", text in "[a-z]{0,9}( [a-z]{1,9}){0,20}", width in 60..140_usize) {
            for line in screen(Some(width), &[[&name, "1", "normal", &text]]).lines() {
                prop_assert!(line.chars().count() <= width, "{line:?}");
            }
        }

        #[test]
        fn wrapping_keeps_every_word_and_the_width(text in "[a-z ]{0,200}", width in 10..60_usize) {
            let lines = wrapped(&text, width);
            let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
            prop_assert_eq!(words, text.split_whitespace().collect::<Vec<_>>());
            for line in &lines {
                prop_assert!(line.chars().count() <= width || !line.contains(' '), "{line:?}");
            }
        }
    }
}
