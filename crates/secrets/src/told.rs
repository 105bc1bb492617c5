//! What servers say, told on.

/// The longest text of a server that is told on, characters.
const TOLD_MAX: usize = 200;

/// A server's text, fit for a line of a log.
pub(crate) fn printable(text: &str) -> String {
    let visible = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.trim().chars().take(TOLD_MAX).map(visible).collect()
}
