//! How far a command is, on standard error: one line that changes on a terminal, else a line for each change.

use std::io::{Stderr, Write, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// Tells people how far something is. If that can't be shown, the outcome still is: nothing here fails.
#[derive(Debug)]
pub struct Progress<W: Write = Stderr> {
    lines: W,
    /// Where the last line can be changed.
    bar: Option<ProgressBar>,
    last: String,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

impl Progress {
    /// On standard error.
    #[must_use]
    pub fn new() -> Progress {
        let bar = ProgressBar::no_length();
        Progress { lines: stderr(), bar: (!bar.is_hidden()).then_some(bar), last: String::new() }
    }
}

impl<W: Write> Progress<W> {
    /// Tells something that has no known end, if it is not what was told last.
    pub fn tell(&mut self, text: String) {
        self.show(text, None);
    }

    /// Tells that `done` of `all` are done; a terminal also shows a bar and, from the second time on, how long the rest
    /// will take.
    pub fn part(&mut self, done: u64, all: u64, text: String) {
        self.show(text, Some((done, all)));
    }

    fn show(&mut self, text: String, part: Option<(u64, u64)>) {
        if text == self.last {
            return;
        }
        match (&self.bar, part) {
            (None, _) => drop(writeln!(self.lines, "{text}")),
            (Some(bar), None) => {
                bar.set_style(style("{wide_msg}"));
                bar.set_message(text.clone());
            }
            (Some(bar), Some((done, all))) => {
                bar.set_style(style("{wide_msg} {bar:16.} {percent:>3}% {eta:>4}"));
                bar.set_length(all);
                bar.set_position(done);
                bar.set_message(text.clone());
            }
        }
        self.last = text;
    }
}

impl<W: Write> Drop for Progress<W> {
    /// What comes next is the outcome.
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates of this file are right")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_each_change_has_a_line() {
        let mut progress = Progress { lines: Vec::new(), bar: None, last: String::new() };
        progress.tell("waiting: n2".into());
        progress.tell("waiting: n2".into());
        progress.part(1, 4, "scrubbing: 3 of 4 groups left".into());
        let shown = String::from_utf8(std::mem::take(&mut progress.lines)).unwrap();
        assert_eq!(shown, "waiting: n2\nscrubbing: 3 of 4 groups left\n");
    }

    #[test]
    fn on_a_terminal_one_line_changes_and_goes() {
        let bar = ProgressBar::hidden();
        let mut progress = Progress { lines: Vec::new(), bar: Some(bar.clone()), last: String::new() };
        progress.tell("waiting: n2".into());
        assert_eq!((bar.message(), bar.length()), ("waiting: n2".into(), None));
        progress.part(1, 4, "scrubbing: 3 of 4 groups left".into());
        assert_eq!((bar.message(), bar.position(), bar.length()), ("scrubbing: 3 of 4 groups left".into(), 1, Some(4)));
        assert!(progress.lines.is_empty() && !bar.is_finished());
        drop(progress);
        assert!(bar.is_finished());
    }
}
