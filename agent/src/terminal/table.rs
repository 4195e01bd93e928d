//! Columns that are as wide as they need to be, and as narrow as the terminal.

use super::wrapped;

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

/// A name and a sentence keep at least so much room.
pub(super) const LEAST: usize = 16;
/// Between two columns.
const GAP: usize = 2;

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
pub(super) struct Layout(Vec<(usize, Column, usize)>);

impl Layout {
    /// The columns that say something in any row, as wide as they need to be or as the terminal lets them.
    pub(super) fn new(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> Self {
        let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
        let says = |column: usize| rows.is_empty() || cells(column).any(|cell| !cell.is_empty());
        let widest = |(column, &kind): (usize, &Column)| {
            let widest = cells(column).map(|cell| cell.chars().count()).max();
            (column, kind, widest.unwrap_or(0).max(kind.head().len()))
        };
        let shown = columns.iter().enumerate();
        let shown = shown.filter(|&(column, _)| says(column));
        let mut layout = Self(shown.map(widest).collect());
        if let Some(width) = width {
            layout.squeeze(width);
        }
        layout
    }

    /// Sentences give way first, then names; amounts never.
    fn squeeze(&mut self, width: usize) {
        for gives in [Column::is_text, Column::is_name] {
            let total: usize = self.0.iter().map(|(.., width)| width + GAP).sum();
            let mut over = total.saturating_sub(width);
            for (_, _, width) in self.0.iter_mut().filter(|(_, column, _)| gives(*column)) {
                let narrower = (*width).saturating_sub(over).max((*width).min(LEAST));
                over -= (*width - narrower).min(over);
                *width = narrower;
            }
        }
    }

    /// What stands over the rows.
    pub(super) fn head(&self) -> Vec<String> {
        let last = self.0.iter().map(|(column, ..)| column + 1).max();
        let mut heads = vec![String::new(); last.unwrap_or(0)];
        for (column, kind, _) in &self.0 {
            kind.head().clone_into(&mut heads[*column]);
        }
        self.lines(&heads)
    }

    /// A row in as many lines as its sentence needs.
    pub(super) fn lines(&self, row: &[String]) -> Vec<String> {
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
pub fn cut(name: &str, width: usize) -> String {
    if name.chars().count() <= width || width == 0 {
        return name.to_owned();
    }
    let units = units(name);
    let front = (width - 1) / 2;
    let back = width - 1 - front;
    let front = fitting(units.iter().copied(), front);
    let back = units.len() - fitting(units.iter().rev().copied(), back);
    format!("{}…{}", units[..front].concat(), units[back..].concat())
}

/// How many of these have so much room, in their order.
fn fitting<'a>(units: impl Iterator<Item = &'a str>, mut room: usize) -> usize {
    let fits = |unit: &&str| {
        let rest = room.checked_sub(unit.chars().count());
        room = rest.unwrap_or(0);
        rest.is_some()
    };
    units.take_while(fits).count()
}

/// The letters of a text, each escape in it as one: the half of an escape would be another name.
fn units(text: &str) -> Vec<&str> {
    let mut units = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let (unit, after) = rest.split_at(escape(rest).unwrap_or(letter.len_utf8()));
        units.push(unit);
        rest = after;
    }
    units
}

/// The length of the escape that a text begins with, such as `\u{1b}`.
fn escape(text: &str) -> Option<usize> {
    const START: &str = "\\u{";
    let (digits, _) = text.strip_prefix(START)?.split_once('}')?;
    let is_one =
        (1..=6).contains(&digits.len()) && digits.bytes().all(|one| one.is_ascii_hexdigit());
    is_one.then_some(START.len() + digits.len() + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::terminal::{Screen, Style, plain};

    #[test]
    fn a_name_loses_its_middle() {
        for (width, expected) in [(10, "abcdefghij"), (9, "abcd…ghij"), (4, "a…ij"), (1, "…")]
        {
            assert_eq!(cut("abcdefghij", width), expected);
        }
    }

    #[test]
    fn an_escape_is_cut_as_a_whole() {
        for (width, expected) in [
            (21, "cgroup/s\\u{1b}[31mxyz"),
            (20, "cgroup/s…[31mxyz"),
            (17, "cgroup/s…[31mxyz"),
            (16, "cgroup/…[31mxyz"),
        ] {
            assert_eq!(cut("cgroup/s\\u{1b}[31mxyz", width), expected, "{width}");
        }
        assert_eq!(cut("a\\u{1b}bcdefghijkl", 17), "a\\u{1b}b…efghijkl");
        // What only looks like one is cut as any other text.
        assert_eq!(cut("ab\\u{xyz}cdef", 9), "ab\\u…cdef");
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
        fn a_cut_name_has_its_width_and_no_half_of_an_escape(name in "[a-c\u{1b}]{0,40}", width in 1..60_usize) {
            let cut = cut(&plain(&name), width);
            prop_assert!(cut.chars().count() <= width, "{cut:?}");
            prop_assert!(!cut.replace("\\u{1b}", "").contains(['\\', '{', '}']), "{cut:?}");
        }

        #[test]
        fn a_row_fits_unless_its_columns_cannot(name in "[a-z]{0,90}", text in "[a-z]{0,9}( [a-z]{1,9}){0,20}", width in 60..140_usize) {
            for line in screen(Some(width), &[[&name, "1", "normal", &text]]).lines() {
                prop_assert!(line.chars().count() <= width, "{line:?}");
            }
        }
    }
}
