//! Plain tables: a line of titles, columns as wide as their widest cell, two spaces between them.

/// How a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table under construction.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these titles.
    pub fn new(columns: &[(&'static str, Align)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with a cell a column. Control characters in it can't disturb the terminal.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        let clean = |cell: String| cell.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    /// The table as lines.
    pub fn render(&self) -> String {
        let width = |index: usize| {
            let cells = self.rows.iter().map(|row| row[index].chars().count());
            cells.max().unwrap_or(0).max(self.columns[index].0.len())
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let titles: Vec<&str> = self.columns.iter().map(|(title, _)| *title).collect();
        let mut text = self.line(&titles, &widths);
        for row in &self.rows {
            text += &self.line(&row.iter().map(String::as_str).collect::<Vec<_>>(), &widths);
        }
        text
    }

    fn line(&self, cells: &[&str], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
            if !line.is_empty() {
                line += "  ";
            }
            match align {
                Align::Left => line += &format!("{cell:<width$}"),
                Align::Right => line += &format!("{cell:>width$}"),
            }
        }
        format!("{}\n", line.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("NAME", Align::Left), ("SIZE", Align::Right), ("CLASS", Align::Left)]);
        table.row(vec!["vol1".into(), "10GiB".into(), "default".into()]);
        table.row(vec!["größer\u{1b}".into(), "1GiB".into(), "".into()]);
        let expected = "NAME      SIZE  CLASS\nvol1     10GiB  default\ngrößer?   1GiB\n";
        assert_eq!(table.render(), expected);
    }
}
