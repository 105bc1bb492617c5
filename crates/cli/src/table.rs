//! Tables: a line of titles, columns as wide as their widest cell, two spaces between them. On a narrow screen cells
//! are broken between words, and where that is not enough, each row becomes lines of its own.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

use super::screen::{Screen, Tone};

/// How a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Spaces between two columns.
const GAP: u16 = 2;

/// A table under construction.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    tones: Vec<fn(&str) -> Tone>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these titles.
    pub fn new(columns: &[(&'static str, Align)]) -> Table {
        Table { columns: columns.to_vec(), tones: vec![|_| Tone::Plain; columns.len()], rows: Vec::new() }
    }

    /// The same with the tone of each cell in the column of this title.
    #[must_use]
    pub fn toned(mut self, title: &str, tone: fn(&str) -> Tone) -> Table {
        let index =
            self.columns.iter().position(|(other, _)| *other == title).expect("the title is one of the table's");
        self.tones[index] = tone;
        self
    }

    /// Adds a row with a cell a column. Control characters in it can't disturb the terminal.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        let clean = |cell: String| cell.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    /// The table as lines, as standard output wants them.
    pub fn render(&self) -> String {
        self.on(Screen::stdout())
    }

    /// The table as lines for a screen.
    fn on(&self, screen: Screen) -> String {
        let mut grid = self.grid();
        let between = GAP * (self.columns.len() as u16 - 1);
        let natural = grid.column_max_content_widths().iter().sum::<u16>() + between;
        let narrow = |columns: &u16| natural > *columns && !self.rows.is_empty();
        if let Some(columns) = screen.columns.filter(narrow) {
            let words: Vec<u16> = (0..self.columns.len()).map(|index| self.longest_word(index)).collect();
            if words.iter().sum::<u16>() + between > columns {
                return self.rows_as_lines(screen, columns);
            }
            grid.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
            for (column, word) in grid.column_iter_mut().zip(words) {
                let least = word + column.padding_width();
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
            }
        }
        screen.apply(&mut grid);
        format!("{}\n", grid.trim_fmt())
    }

    fn grid(&self) -> comfy_table::Table {
        let mut grid = comfy_table::Table::new();
        grid.load_style(presets::NOTHING).set_header(self.columns.iter().map(|(title, _)| Tone::Title.cell(title)));
        for row in &self.rows {
            grid.add_row(row.iter().zip(&self.tones).map(|(cell, tone)| tone(cell).cell(cell)));
        }
        let last = self.columns.len() - 1;
        for (index, (column, (_, align))) in grid.column_iter_mut().zip(&self.columns).enumerate() {
            column.set_padding((0, if index == last { 0 } else { GAP }));
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        grid
    }

    /// The width of the longest word of a column, its title included.
    fn longest_word(&self, index: usize) -> u16 {
        let cells = self.rows.iter().map(|row| row[index].as_str()).chain([self.columns[index].0]);
        let words = cells.flat_map(str::split_whitespace).map(|word| word.chars().count());
        words.max().unwrap_or(0).min(u16::MAX.into()) as u16
    }

    /// A line for each cell, its title in front of it, and an empty line between two rows.
    fn rows_as_lines(&self, screen: Screen, columns: u16) -> String {
        let rows = self.rows.iter().map(|row| {
            let mut lines = comfy_table::Table::new();
            lines.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
            for (((title, _), tone), cell) in self.columns.iter().zip(&self.tones).zip(row) {
                if !cell.is_empty() {
                    lines.add_row([Tone::Title.cell(title), tone(cell).cell(cell)]);
                }
            }
            for (column, padding) in lines.column_iter_mut().zip([(0, GAP), (0, 0)]) {
                column.set_padding(padding);
            }
            screen.apply(&mut lines);
            lines.trim_fmt() + "\n"
        });
        rows.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Screen = Screen { columns: None, colours: false };

    fn volumes() -> Table {
        let mut table = Table::new(&[("NAME", Align::Left), ("SIZE", Align::Right), ("NOTE", Align::Left)])
            .toned("NOTE", |note| if note.is_empty() { Tone::Plain } else { Tone::Bad });
        table.row(vec!["vol1".into(), "10GiB".into(), "".into()]);
        table.row(vec!["größer\u{1b}".into(), "1GiB".into(), "no room on any of its devices".into()]);
        table
    }

    fn narrow(columns: u16) -> Screen {
        Screen { columns: Some(columns), ..WIDE }
    }

    #[test]
    fn columns_line_up() {
        let expected = "NAME      SIZE  NOTE\nvol1     10GiB\ngrößer?   1GiB  no room on any of its devices\n";
        assert_eq!(volumes().on(WIDE), expected);
        assert_eq!(volumes().on(narrow(45)), expected);
    }

    #[test]
    fn narrow_screens_break_between_words() {
        let expected = "NAME      SIZE  NOTE\nvol1     10GiB\ngrößer?   1GiB  no room on\n                any of its\n                devices\n";
        assert_eq!(volumes().on(narrow(26)), expected);
    }

    #[test]
    fn the_narrowest_have_a_line_for_each_cell() {
        let expected =
            "NAME  vol1\nSIZE  10GiB\n\nNAME  größer?\nSIZE  1GiB\nNOTE  no room on\n      any of its\n      devices\n";
        assert_eq!(volumes().on(narrow(17)), expected);
    }

    #[test]
    fn wide_characters_count_twice() {
        let mut table = Table::new(&[("NAME", Align::Left), ("SIZE", Align::Right)]);
        table.row(vec!["日本".into(), "1GiB".into()]);
        table.row(vec!["disk".into(), "1GiB".into()]);
        assert_eq!(table.on(WIDE), "NAME  SIZE\n日本  1GiB\ndisk  1GiB\n");
    }

    #[test]
    fn colours_are_for_screens_that_have_them() {
        let text = volumes().on(Screen { colours: true, ..WIDE });
        assert!(text.contains("\u{1b}["), "{text:?}");
        let plain: String = anstream::adapter::strip_str(&text).to_string();
        let trimmed: Vec<&str> = plain.lines().map(str::trim_end).collect();
        assert_eq!(trimmed, volumes().on(WIDE).lines().collect::<Vec<_>>());
        assert!(!volumes().on(WIDE).contains('\u{1b}'));
    }
}
