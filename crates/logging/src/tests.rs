#![allow(clippy::unwrap_used)]

use super::*;

use std::io;
use std::sync::{Arc, Mutex};

/// Where a log is kept.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that something writes in this form.
fn lines(format: LogFormat, write: impl FnOnce()) -> Vec<String> {
    let kept = Kept::default();
    let (at, to) = (kept.clone(), EnvFilter::new("info"));
    match format {
        LogFormat::Text => tracing::subscriber::with_default(text(move || at.clone(), to, false), write),
        LogFormat::Json => tracing::subscriber::with_default(json(move || at.clone(), to), write),
    }
    let bytes = kept.0.lock().unwrap();
    String::from_utf8(bytes.clone()).unwrap().lines().map(str::to_owned).collect()
}

fn two_lines() {
    let none: Option<&str> = None;
    tracing::warn!(device = %3, volume = "v1", layer = none, "device 3: volume v1 is slow");
    tracing::debug!("not told");
    tracing::info!(attempts = 2, "done");
}

#[test]
fn text_repeats_nothing() {
    let told = lines(LogFormat::Text, two_lines);
    let (time, rest) = told[0].split_once(' ').unwrap();
    assert!(time.ends_with('Z'), "{told:?}");
    assert_eq!(rest, " WARN azekura_logging::tests: device 3: volume v1 is slow");
    assert!(told[1].ends_with(": done attempts=2"), "{told:?}");
    assert_eq!(told.len(), 2);
}

#[test]
fn json_has_what_the_sentence_names() {
    let told = lines(LogFormat::Json, two_lines);
    let parsed: Vec<serde_json::Value> = told.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(parsed.len(), 2);
    let mut first = parsed[0].as_object().unwrap().clone();
    assert!(first.remove("timestamp").unwrap().as_str().unwrap().ends_with('Z'));
    let expected = serde_json::json!({
        "level": "WARN", "target": "azekura_logging::tests", "message": "device 3: volume v1 is slow",
        "device": "3", "volume": "v1",
    });
    assert_eq!(serde_json::Value::Object(first), expected);
    assert_eq!(parsed[1]["attempts"], 2);
}

#[test]
fn what_a_client_sends_is_no_line_and_no_command_for_the_terminal() {
    let name = "v\n2026-01-01T00:00:00Z  INFO all is well\r\x1b[2J\u{9b}ü";
    let write = || tracing::warn!(volume = %name, "no volume {name}");
    let told = lines(LogFormat::Text, write);
    assert_eq!(told.len(), 1, "{told:?}");
    let expected = "no volume v\\n2026-01-01T00:00:00Z  INFO all is well\\r\\u{1b}[2J\\u{9b}ü";
    assert!(told[0].ends_with(expected), "{told:?}");
    let told = lines(LogFormat::Json, write);
    let [line] = &told[..] else { panic!("{told:?}") };
    assert_eq!(serde_json::from_str::<serde_json::Value>(line).unwrap()["volume"], name);
}

#[test]
fn the_end_of_a_process_has_a_hint_apart() {
    for (message, hint) in [("no room", Some("make some")), ("no room\nhint: make some", None)] {
        let told = lines(LogFormat::Json, || fatal(message, hint));
        let line: serde_json::Value = serde_json::from_str(&told[0]).unwrap();
        assert_eq!((&line["message"], &line["hint"]), (&"no room".into(), &"make some".into()), "{told:?}");
    }
}

#[test]
fn a_panic_is_a_line() {
    let told = lines(LogFormat::Json, || {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(panicked));
        let ended = std::panic::catch_unwind(|| panic!("there is\nno way"));
        std::panic::set_hook(before);
        ended.unwrap_err();
    });
    let [line] = &told[..] else { panic!("{told:?}") };
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert!(line["message"].as_str().unwrap().ends_with("there is\nno way"), "{line}");
    assert_eq!(line["level"], "ERROR");
}
