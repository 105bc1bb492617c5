//! Why the driver does not start.

/// Why the driver does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiError {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: &'static str,
}
