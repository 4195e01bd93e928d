//! A part of a terminal that lines are put into: cut at its edges, which is marked, and without anything that steers it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::state::Manner;
use crate::terminal::plain;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tint {
    /// As it is.
    Plain,
    /// What heads something.
    Strong,
    /// The title of a part.
    Title,
    /// What matters less.
    Faint,
    /// What is chosen.
    Chosen,
    /// What is wrong.
    Alarm,
}

impl Tint {
    fn style(self, colour: bool) -> Style {
        let style = Style::new();
        match self {
            Self::Plain => style,
            Self::Title if colour => style.add_modifier(Modifier::BOLD).fg(Color::Cyan),
            Self::Strong | Self::Title => style.add_modifier(Modifier::BOLD),
            Self::Faint => style.add_modifier(Modifier::DIM),
            Self::Chosen => style.add_modifier(Modifier::REVERSED),
            Self::Alarm if colour => style.add_modifier(Modifier::BOLD).fg(Color::Red),
            Self::Alarm => style.add_modifier(Modifier::BOLD | Modifier::REVERSED),
        }
    }
}

/// What is drawn into.
pub(super) struct Picture<'a> {
    area: Rect,
    buffer: &'a mut Buffer,
    pub(super) manner: Manner,
}

impl<'a> Picture<'a> {
    /// A part of a buffer; what lies outside of the buffer is left out.
    pub(super) fn new(area: Rect, buffer: &'a mut Buffer, manner: Manner) -> Self {
        let area = area.intersection(buffer.area);
        Self {
            area,
            buffer,
            manner,
        }
    }

    pub(super) fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    pub(super) fn height(&self) -> usize {
        usize::from(self.area.height)
    }

    /// Puts a line at a row, over its whole width.
    pub(super) fn line(&mut self, row: usize, text: &str, tint: Tint) {
        self.text(row, 0, text, tint);
        let Some(y) = self.row(row) else {
            return;
        };
        if tint == Tint::Chosen {
            let whole = Rect::new(self.area.x, y, self.area.width, 1);
            self.buffer.set_style(whole, tint.style(self.manner.colour));
        }
    }

    /// Puts a text at a row and column.
    pub(super) fn text(&mut self, row: usize, column: usize, text: &str, tint: Tint) {
        self.between(row, (column, self.width()), text, tint);
    }

    /// Puts a text at a row from a column on, up to another one.
    pub(super) fn between(
        &mut self,
        row: usize,
        (from, to): (usize, usize),
        text: &str,
        tint: Tint,
    ) {
        let room = to.min(self.width()).saturating_sub(from);
        let (Some(y), Ok(column)) = (self.row(row), u16::try_from(from)) else {
            return;
        };
        if room == 0 {
            return;
        }
        let style = tint.style(self.manner.colour);
        let x = self.area.x + column;
        let text = self.marked(&plain(text), room);
        self.buffer.set_stringn(x, y, text, room, style);
    }

    /// What has no room is seen to go on: half a figure would be another one.
    fn marked(&self, text: &str, room: usize) -> String {
        let text = text.trim_end();
        if text.chars().count() <= room {
            return text.to_owned();
        }
        let shown = text.chars().take(room.saturating_sub(1));
        shown.chain([self.manner.mark()]).collect()
    }

    /// Puts a text at the right end of a row; the column that it begins in.
    pub(super) fn at_end(&mut self, row: usize, text: &str, tint: Tint) -> usize {
        let column = self.width().saturating_sub(plain(text).chars().count());
        self.text(row, column, text, tint);
        column
    }

    fn row(&self, row: usize) -> Option<u16> {
        let row = u16::try_from(row).ok()?;
        (row < self.area.height).then(|| self.area.y + row)
    }

    /// A share of a whole as a bar, with marks where its thresholds are.
    pub(super) fn bar(&self, width: usize, of: (i64, i64), marks: &[i64]) -> String {
        let (full, empty, mark) = if self.manner.unicode {
            ('█', '░', '┃')
        } else {
            ('#', '.', '|')
        };
        let (value, whole) = of;
        let at = |value: i64| {
            let cells = i128::try_from(width).unwrap_or(0);
            let cell = i128::from(value.max(0)) * cells;
            let cell = cell.checked_div(i128::from(whole)).unwrap_or(0);
            usize::try_from(cell).unwrap_or(0)
        };
        let mut bar: Vec<char> = (0..width)
            .map(|cell| if cell < at(value) { full } else { empty })
            .collect();
        for threshold in marks {
            if let Some(cell) = bar.get_mut(at(*threshold)) {
                *cell = mark;
            }
        }
        bar.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_filled_by_its_share_and_marked_at_its_thresholds() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 1));
        let manner = Manner {
            colour: false,
            unicode: false,
        };
        let area = buffer.area;
        let picture = Picture::new(area, &mut buffer, manner);
        for (of, marks, expected) in [
            ((50, 100), &[][..], "#####....."),
            ((50, 100), &[10, 99], "#|###....|"),
            ((200, 100), &[200], "##########"),
            ((-5, 100), &[-5], "|........."),
            ((5, 0), &[], ".........."),
            ((i64::MAX, i64::MAX), &[], "##########"),
        ] {
            assert_eq!(picture.bar(10, of, marks), expected, "{of:?}");
        }
    }

    #[test]
    fn nothing_is_put_outside_and_nothing_steers() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 3));
        let manner = Manner {
            colour: true,
            unicode: true,
        };
        let mut picture = Picture::new(Rect::new(2, 1, 100, 100), &mut buffer, manner);
        assert_eq!((picture.width(), picture.height()), (6, 2));
        picture.line(0, "a\u{1b}[2Jb", Tint::Alarm);
        picture.line(2, "below", Tint::Chosen);
        picture.text(1, 99, "beside", Tint::Plain);
        picture.at_end(1, "end", Tint::Plain);
        let rows: Vec<String> = buffer
            .content
            .chunks(8)
            .map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect())
            .collect();
        assert_eq!(rows, ["        ", "  a\\u{1…", "     end"]);
    }
}
