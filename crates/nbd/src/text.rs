//! Text for clients, none of it longer than the protocol allows.

/// The longest beginning of `text` with at most `max` bytes.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_keeps_characters_whole() {
        assert_eq!(cut("azekura", 3), "aze");
        assert_eq!(cut("校倉造", 5), "校");
        assert_eq!(cut("校", 5), "校");
    }
}
