//! What only who sends it and who receives it may know, as a text.

use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::Zeroize;

/// A passphrase or a key, as the body of a request has it. It is overwritten when it is dropped, and nothing prints it;
/// what reads and writes requests has copies of its own for a moment.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// The one of this text.
    #[must_use]
    pub fn new(text: String) -> SecretText {
        SecretText(text)
    }

    /// The text, for whoever has to know it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl Drop for SecretText {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_prints_it() {
        assert_eq!(format!("{:?}", SecretText::new("correct horse".to_owned())), "SecretText(…)");
    }
}
