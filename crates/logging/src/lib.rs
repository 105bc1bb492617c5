//! The log of a process that serves: lines on its standard error, for people or for machines
//! (docs/operations/logs.md).

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::{self, Debug, Write};
use std::io::IsTerminal;

use clap::ValueEnum;
use tracing::Subscriber;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// The variable of the environment that says from which level on lines are written.
const LEVEL: &str = "AZEKURA_LOG";
/// Fields that repeat what the sentence names, for machines.
const NAMES: [&str; 5] = ["volume", "group", "device", "layer", "peer"];

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Time, level, the part of the program, and a sentence.
    #[default]
    Text,
    /// A JSON object: `timestamp` (RFC 3339, UTC), `level`, `target`, `message`, and of volume, group, device, layer
    /// and peer those that the message is about.
    Json,
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        })
    }
}

/// Begins to write the log: once in a process, before anything else.
pub fn begin(format: LogFormat) {
    let filter = EnvFilter::builder().with_env_var(LEVEL).with_default_directive(LevelFilter::INFO.into());
    let (filter, colours) = (filter.from_env_lossy(), std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => tracing::subscriber::set_global_default(text(std::io::stderr, filter, colours)),
        LogFormat::Json => {
            // Whoever reads JSON reads nothing else.
            std::panic::set_hook(Box::new(panicked));
            tracing::subscriber::set_global_default(json(std::io::stderr, filter))
        }
    }
    .expect("the log of a process begins once");
}

/// Tells why the process ends, and what to do about it; some messages say that in lines of their own.
pub fn fatal(message: &str, hint: Option<&str>) {
    let (message, hint) = match message.split_once("\nhint: ") {
        Some((message, within)) => (message, hint.or(Some(within))),
        None => (message, hint),
    };
    tracing::error!(hint, "{message}");
}

fn text<W>(to: W, filter: EnvFilter, colours: bool) -> impl Subscriber
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt().with_writer(to).with_env_filter(filter);
    lines.with_ansi(colours).fmt_fields(debug_fn(sentence)).finish()
}

fn json<W>(to: W, filter: EnvFilter) -> impl Subscriber
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt().with_writer(to).with_env_filter(filter);
    lines.json().flatten_event(true).with_current_span(false).with_span_list(false).finish()
}

/// The sentence, and the fields that are not in it.
fn sentence(to: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    match field.name() {
        "message" => write!(OneLine(to), "{value:?}"),
        name if NAMES.contains(&name) => Ok(()),
        name => write!(OneLine(to), " {name}={value:?}"),
    }
}

/// What clients send may be quoted: it neither begins a line of its own nor talks to the terminal.
struct OneLine<'a, 'writer>(&'a mut Writer<'writer>);

impl Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive(char::is_control) {
            let plain = piece.trim_end_matches(char::is_control);
            self.0.write_str(plain)?;
            piece.chars().skip(plain.chars().count()).try_for_each(|odd| write!(self.0, "{}", odd.escape_default()))?;
        }
        Ok(())
    }
}

/// Tells of a panic, in one line.
fn panicked(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name").to_owned();
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let payload = panic.payload();
    let what = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref().map(String::as_str));
    let what = what.unwrap_or("of an unknown kind");
    let calls = Backtrace::capture();
    match calls.status() {
        BacktraceStatus::Captured => {
            tracing::error!(backtrace = %calls, "the thread {name} has panicked at {place}: {what}");
        }
        _ => tracing::error!("the thread {name} has panicked at {place}: {what}"),
    }
}

#[cfg(test)]
mod tests;
