//! Lines `VERSION REST`, as files with KEKs and those that name KEKs have them.

/// What is wrong with a line, and which it is, from 1 on.
pub(crate) type LineError = (usize, &'static str);

/// The lines: their number from 1 on, the version, the rest. Empty ones, and those that begin with `#`, are left out.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Result<(usize, u32, &str), LineError>> {
    let said = text.lines().map(str::trim).enumerate();
    said.filter(|(_, line)| !(line.is_empty() || line.starts_with('#'))).map(|(at, line)| {
        let at = at + 1;
        let (version, rest) = line.split_once(' ').ok_or((at, "there is no space in it"))?;
        let version = version.parse().ok().filter(|version| *version > 0);
        Ok((at, version.ok_or((at, "the version is no number from 1 on"))?, rest.trim()))
    })
}
