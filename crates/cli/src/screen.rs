//! What standard output is shown on: how wide, and whether in colours.

use std::io::{IsTerminal, stdout};

use anstream::{AutoStream, ColorChoice};
use comfy_table::{Attribute, Cell, Color};

/// What text is shown on.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Characters that fit into a line; `None`: however many there are.
    pub columns: Option<u16>,
    /// Whether colours and bold text are wanted.
    pub colours: bool,
}

/// What a text tells its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Nothing in particular.
    Plain,
    /// Something to know.
    Notice,
    /// Something to do something about.
    Bad,
    /// The title of a column.
    Title,
}

impl Screen {
    /// Standard output. `COLUMNS` goes before the terminal's own width. Colours are for terminals, where neither
    /// `NO_COLOR` nor `TERM=dumb` is set.
    pub fn stdout() -> Screen {
        let set = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).filter(|columns| *columns > 0);
        let found = || terminal_size::terminal_size_of(stdout()).map(|(width, _)| width.0);
        let colours = stdout().is_terminal() && AutoStream::choice(&stdout()) != ColorChoice::Never;
        Screen { columns: set.or_else(found), colours }
    }

    /// A text in its colour.
    pub fn paint(self, text: &str, tone: Tone) -> String {
        let mut line = comfy_table::Table::new();
        line.load_style(comfy_table::presets::NOTHING).add_row([tone.cell(text)]);
        line.column_mut(0).map(|column| column.set_padding((0, 0)));
        self.apply(&mut line);
        line.trim_fmt()
    }

    /// Tells a table whether there are colours.
    pub fn apply(self, table: &mut comfy_table::Table) {
        if self.colours {
            table.enforce_styling()
        } else {
            table.force_no_tty()
        };
    }
}

impl Tone {
    /// A cell of a table in this tone.
    pub fn cell(self, text: &str) -> Cell {
        match self {
            Tone::Plain => Cell::new(text),
            Tone::Notice => Cell::new(text).fg(Color::Yellow),
            Tone::Bad => Cell::new(text).fg(Color::Red),
            Tone::Title => Cell::new(text).add_attribute(Attribute::Bold),
        }
    }
}
