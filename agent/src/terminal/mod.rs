//! What a terminal is told: nothing that steers it, in lines and columns that fit its width, in colours only where it has them.

mod table;

use std::env;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

pub use table::{Column, cut};
use table::{LEAST, Layout};

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

/// A text that is being put together. Nothing gets into it unescaped.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    style: Style,
    text: String,
    is_fitting: bool,
}

/// A paragraph is not made narrower or wider than this: longer lines are hard to read.
const NARROWEST: usize = 40;
const WIDEST: usize = 120;

/// Whether a stream gets colours: a terminal that is not dumb, and `NO_COLOR` not set.
pub fn is_coloured(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !set("NO_COLOR") && !is_dumb()
}

/// Whether the environment says that the terminal can do nothing but go on.
pub fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|term| term == "dumb")
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

/// A text in which each word that is longer than a line has lost its middle.
pub fn fitted(text: &str, width: usize) -> String {
    let words = text.split_whitespace();
    let words: Vec<String> = words.map(|word| cut(word, width.max(LEAST))).collect();
    words.join(" ")
}

/// The lines of a table's head, and those of each row, escaped. A column that has nothing to say in any row is left out.
pub fn table_lines(
    columns: &[Column],
    rows: &[Vec<String>],
    width: Option<usize>,
) -> (Vec<String>, Vec<Vec<String>>) {
    let escaped = |row: &Vec<String>| row.iter().map(|cell| plain(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(escaped).collect();
    let layout = Layout::new(columns, &rows, width);
    let lines = rows.iter().map(|row| layout.lines(row)).collect();
    (layout.head(), lines)
}

/// Whether the environment says that the terminal shows more than ASCII.
pub fn is_unicode() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let mut set = set.filter_map(|name| env::var(name).ok().filter(|value| !value.is_empty()));
    set.next().is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
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
            is_fitting: false,
        }
    }

    /// One for names that may be long: on a terminal, what a line has no room for loses its middle in sentences as it does
    /// in tables. What is to be copied, as advice and the paths of errors are, does not belong here.
    pub const fn fitting(style: Style) -> Self {
        Self {
            style,
            text: String::new(),
            is_fitting: true,
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
            Some(width) => {
                let text = if self.is_fitting {
                    fitted(&text, width.saturating_sub(indent))
                } else {
                    text
                };
                wrapped(&text, width.clamp(NARROWEST, WIDEST).saturating_sub(indent))
            }
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

    /// A line of a drawing, which is not broken; whoever draws keeps to the width.
    pub fn drawing(&mut self, line: &str) {
        self.text.push_str(&plain(line));
        self.text.push('\n');
    }

    /// Rows under a head. A column that has nothing to say in any row is left out.
    pub fn table(&mut self, columns: &[Column], rows: &[Vec<String>]) {
        let colour = self.style.colour;
        let (head, rows) = table_lines(columns, rows, self.style.width);
        let head = head.iter();
        let head = head.map(|line| painted(line, Paint::Strong, colour));
        for line in head.chain(rows.into_iter().flatten()) {
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }
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
    fn a_word_longer_than_a_line_loses_its_middle_where_names_are_told_on_a_terminal() {
        let text = format!("shop/{}: appeared", "x".repeat(100));
        let told = |mut screen: Screen| {
            screen.line("label ", &text);
            screen.into_text()
        };
        let style = |width| Style {
            width,
            colour: false,
        };
        let cut = told(Screen::fitting(style(Some(60))));
        let lines: Vec<&str> = cut.lines().collect();
        assert_eq!(lines.len(), 2, "{cut}");
        assert_eq!(lines[0].chars().count(), 60, "{cut}");
        assert!(lines[0].starts_with("label shop/xx") && lines[0].ends_with("xx:"));
        assert!(lines[0].contains('…') && lines[1] == "      appeared");
        let whole = "x".repeat(100);
        assert!(told(Screen::new(style(Some(60)))).contains(&whole));
        assert_eq!(
            told(Screen::fitting(style(None))),
            format!("label {text}\n")
        );
    }

    proptest! {
        #[test]
        fn nothing_that_steers_is_left(text in any::<String>()) {
            prop_assert!(!plain(&text).chars().any(char::is_control));
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
