//! `azekura snapshot diff`: what has changed since a snapshot, for incremental copies.
//!
//! The answer comes in pages and is printed as it comes: a large volume may have more ranges than fit into memory.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use azekura_api::endpoint::SnapshotDiff;
use azekura_api::{DiffKind, DiffQuery, DiffRange, DiffView};
use azekura_base::LayerId;
use azekura_client::Client;
use clap::Args;

use super::snapshot::Target;
use super::{ApiArgs, CliError};
use azekura_base::Size;

/// Pause between two lines of progress, and before the first.
const PROGRESS_PAUSE: Duration = Duration::from_secs(2);

/// Arguments of `azekura snapshot diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The snapshot before: VOLUME@NAME, or VOLUME@TIME for the newest that is not younger.
    #[arg(value_name = "VOLUME@SNAPSHOT")]
    from: Target,
    /// The snapshot after, or a volume as it is now [default: the first one's volume as it is now].
    #[arg(value_name = "VOLUME[@SNAPSHOT]")]
    to: Option<Target>,
    #[command(flatten)]
    api: ApiArgs,
}

impl DiffArgs {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let (volume, _) = self.from.named()?;
        let to = self.to.clone().unwrap_or_else(|| Target::volume(volume));
        let client = self.api.client()?;
        let mut pages = Pages { client, progress: Progress::new(), next: None };
        let mut first = pages.get(question(&self.from, &to)?, &Sums::default())?;
        let out = std::io::stdout().lock();
        let printed = if self.api.json {
            print(&mut Json { out, any: false }, &mut first, &mut pages)
        } else {
            print(&mut Text { out }, &mut first, &mut pages)
        };
        match printed {
            Ok(()) => Ok(ExitCode::SUCCESS),
            // A reader that has seen enough (`| head`) is no error.
            Err(Stopped::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            Err(Stopped::Output(error)) => Err(CliError::new(format!("can't write to standard output: {error}"))),
            Err(Stopped::Question(error)) => Err(error),
        }
    }
}

/// A question about a snapshot: its names in the path, and what to compare it with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    names: [String; 2],
    query: DiffQuery,
}

fn question(from: &Target, to: &Target) -> Result<Question, CliError> {
    let (volume, snapshot) = to.parts();
    let (to_volume, to) = (Some(volume.to_owned()), snapshot.map(str::to_owned));
    Ok(Question { names: from.names()?, query: DiffQuery { to, to_volume, ..DiffQuery::default() } })
}

/// The question after this page: by the names that were found, which stay the same while a time goes on. `None`: it was
/// the last page.
fn next_question(page: &DiffView) -> Option<Question> {
    let offset_bytes = page.next_offset_bytes?;
    let Question { names, query } = question(&page.from.parse().ok()?, &page.to.parse().ok()?).ok()?;
    let (from_layer, to_layer) = (Some(LayerId(page.from_layer)), Some(LayerId(page.to_layer)));
    Some(Question { names, query: DiffQuery { offset_bytes, from_layer, to_layer, ..query } })
}

/// Why nothing more is printed.
enum Stopped {
    Output(std::io::Error),
    Question(CliError),
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Stopped {
        Stopped::Output(error)
    }
}

/// What has been printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    ranges: u64,
    data_bytes: u64,
    zero_bytes: u64,
}

impl Sums {
    fn add(&mut self, range: &DiffRange) {
        self.ranges += 1;
        match range.kind {
            DiffKind::Data => self.data_bytes += range.length_bytes,
            DiffKind::Zero => self.zero_bytes += range.length_bytes,
        }
    }
}

/// Pages from a node.
struct Pages {
    client: Client,
    progress: Progress,
    next: Option<Question>,
}

impl Pages {
    fn get(&mut self, question: Question, sums: &Sums) -> Result<DiffView, CliError> {
        let page = self.client.ask::<SnapshotDiff>(question.names, &question.query)?;
        self.next = next_question(&page);
        self.progress.tell(&page, sums);
        Ok(page)
    }

    fn next(&mut self, sums: &Sums) -> Result<Option<DiffView>, Stopped> {
        let Some(question) = self.next.take() else { return Ok(None) };
        self.get(question, sums).map(Some).map_err(Stopped::Question)
    }
}

/// Tells people now and then how far it is.
struct Progress {
    shown_at: Instant,
}

impl Progress {
    fn new() -> Progress {
        Progress { shown_at: Instant::now() }
    }

    fn tell(&mut self, page: &DiffView, sums: &Sums) {
        let Some(offset) = page.next_offset_bytes.filter(|_| self.shown_at.elapsed() >= PROGRESS_PAUSE) else { return };
        self.shown_at = Instant::now();
        let percent = offset as f64 * 100.0 / page.size_bytes.max(1) as f64;
        let found = Size::new(sums.data_bytes + sums.zero_bytes);
        // Progress for people; if it can't be shown, the outcome still is.
        let _shown = writeln!(std::io::stderr(), "comparing: {percent:.0}% of {}, {found} have changed", page.to);
    }
}

/// How ranges are printed.
trait Printer {
    fn begin(&mut self, first: &DiffView) -> std::io::Result<()>;
    fn range(&mut self, range: &DiffRange) -> std::io::Result<()>;
    fn end(&mut self, first: &DiffView, sums: &Sums) -> std::io::Result<()>;
}

/// Prints all pages from the first one on.
fn print(printer: &mut impl Printer, first: &mut DiffView, pages: &mut Pages) -> Result<(), Stopped> {
    printer.begin(first)?;
    let mut sums = Sums::default();
    let mut last: Option<DiffRange> = None;
    let mut ranges = std::mem::take(&mut first.ranges);
    loop {
        for range in ranges {
            match &mut last {
                // Neighbours of two pages.
                Some(before) if before.kind == range.kind && end_of(before) == range.offset_bytes => {
                    before.length_bytes += range.length_bytes;
                }
                _ => {
                    if let Some(before) = last.replace(range) {
                        sums.add(&before);
                        printer.range(&before)?;
                    }
                }
            }
        }
        match pages.next(&sums)? {
            Some(page) => ranges = page.ranges,
            None => break,
        }
    }
    if let Some(before) = last {
        sums.add(&before);
        printer.range(&before)?;
    }
    printer.end(first, &sums)?;
    Ok(())
}

fn end_of(range: &DiffRange) -> u64 {
    range.offset_bytes + range.length_bytes
}

/// Lines for people.
struct Text<W> {
    out: W,
}

impl<W: Write> Printer for Text<W> {
    fn begin(&mut self, _: &DiffView) -> std::io::Result<()> {
        writeln!(self.out, "{:>16}  {:>14}  KIND", "OFFSET", "LENGTH")
    }

    fn range(&mut self, range: &DiffRange) -> std::io::Result<()> {
        let (offset, length) = (whole_units(range.offset_bytes), whole_units(range.length_bytes));
        writeln!(self.out, "{offset:>16}  {length:>14}  {}", range.kind)
    }

    fn end(&mut self, first: &DiffView, sums: &Sums) -> std::io::Result<()> {
        let Sums { ranges, data_bytes, zero_bytes } = *sums;
        let named = if ranges == 1 { "range" } else { "ranges" };
        let (data, zeros) = (Size::new(data_bytes), Size::new(zero_bytes));
        writeln!(self.out, "{ranges} {named} from {} to {}: {data} of data, {zeros} of zeros", first.from, first.to)?;
        if first.from_size_bytes != first.size_bytes {
            let (before, after) = (Size::new(first.from_size_bytes).exact(), Size::new(first.size_bytes).exact());
            writeln!(self.out, "The size was {before} and is {after}.")?;
        }
        self.out.flush()
    }
}

/// The largest unit in which a number of bytes is whole, so that nothing is lost and sizes can be compared at a glance.
fn whole_units(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes >= 1 << shift && bytes.trailing_zeros() >= *shift) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes}B"),
    }
}

/// One JSON object, with a line a range.
struct Json<W> {
    out: W,
    any: bool,
}

impl<W: Write> Printer for Json<W> {
    fn begin(&mut self, first: &DiffView) -> std::io::Result<()> {
        writeln!(self.out, "{{\n  \"from\": {},", serde_json::to_string(&first.from)?)?;
        writeln!(self.out, "  \"to\": {},", serde_json::to_string(&first.to)?)?;
        writeln!(self.out, "  \"from_size_bytes\": {},", first.from_size_bytes)?;
        writeln!(self.out, "  \"size_bytes\": {},", first.size_bytes)?;
        write!(self.out, "  \"ranges\": [")
    }

    fn range(&mut self, range: &DiffRange) -> std::io::Result<()> {
        let comma = if std::mem::replace(&mut self.any, true) { "," } else { "" };
        write!(self.out, "{comma}\n    {}", serde_json::to_string(range)?)
    }

    fn end(&mut self, _: &DiffView, sums: &Sums) -> std::io::Result<()> {
        let Sums { data_bytes, zero_bytes, .. } = sums;
        let close = if self.any { "\n  ]" } else { "]" };
        writeln!(self.out, "{close},\n  \"data_bytes\": {data_bytes},\n  \"zero_bytes\": {zero_bytes}\n}}")?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use azekura_api::Endpoint;

    use super::*;

    fn view() -> DiffView {
        DiffView {
            from: "v@a b".into(),
            from_layer: 3,
            to: "v".into(),
            to_layer: 5,
            from_size_bytes: 1 << 30,
            size_bytes: 2 << 30,
            ranges: Vec::new(),
            next_offset_bytes: Some(4 << 20),
        }
    }

    fn printed<P: Printer>(printer: &mut P) {
        let range = |offset_bytes, length_bytes, kind| DiffRange { offset_bytes, length_bytes, kind };
        let mut sums = Sums::default();
        printer.begin(&view()).unwrap();
        for range in [range(0, 4096, DiffKind::Data), range((1 << 30) + 4096, 12 << 20, DiffKind::Zero)] {
            sums.add(&range);
            printer.range(&range).unwrap();
        }
        printer.end(&view(), &sums).unwrap();
    }

    #[test]
    fn questions_go_on_by_the_names_that_were_found() {
        let target = |Question { names, query }| SnapshotDiff::target(&names, &query).unwrap();
        let asked = question(&"v@a".parse().unwrap(), &"w@10 minutes ago".parse().unwrap()).unwrap();
        assert_eq!(target(asked), "/v1/volumes/v/snapshots/a/diff?to=10+minutes+ago&to_volume=w");
        let next = "/v1/volumes/v/snapshots/a%20b/diff?to_volume=v&offset_bytes=4194304&from_layer=3&to_layer=5";
        assert_eq!(next_question(&view()).map(target).as_deref(), Some(next));
        assert_eq!(next_question(&DiffView { next_offset_bytes: None, ..view() }), None);
    }

    #[test]
    fn text_loses_nothing() {
        let mut text = Text { out: Vec::new() };
        printed(&mut text);
        let expected = "          OFFSET          LENGTH  KIND\n              0B            4KiB  data\n      \
                        1048580KiB           12MiB  zero\n\
                        2 ranges from v@a b to v: 4KiB of data, 12MiB of zeros\nThe size was 1GiB and is 2GiB.\n";
        assert_eq!(String::from_utf8(text.out).unwrap(), expected);
        assert_eq!(
            (whole_units(3 << 40), whole_units(4097), whole_units(0)),
            ("3TiB".into(), "4097B".into(), "0B".into())
        );
    }

    #[test]
    fn json_is_whole() {
        let mut json = Json { out: Vec::new(), any: false };
        printed(&mut json);
        let value: serde_json::Value = serde_json::from_slice(&json.out).unwrap();
        assert_eq!(value["ranges"][1]["offset_bytes"], (1 << 30) + 4096);
        assert_eq!((&value["ranges"][0]["kind"], &value["zero_bytes"]), (&"data".into(), &(12 << 20).into()));
        let mut empty = Json { out: Vec::new(), any: false };
        empty.begin(&view()).unwrap();
        empty.end(&view(), &Sums::default()).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&empty.out).unwrap();
        assert_eq!(value["ranges"], serde_json::json!([]));
    }
}
