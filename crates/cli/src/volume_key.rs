//! `azekura volume key` and `azekura volume rotate-key`: the data keys of encrypted volumes.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use azekura_api::endpoint::{VolumeKeyRotate, VolumeKeyShow};
use azekura_api::{NoQuery, RekeyPass, RekeyView, VolumeKeyView};
use azekura_base::Size;
use azekura_client::Client;
use clap::Args;

use super::output::{print, print_json};
use super::progress::Progress;
use super::table::{Align, Table};
use super::{ApiArgs, CliError};

/// Pause between two looks with --wait.
const WAIT_STEP: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub struct KeyArgs {
    /// Name of the volume.
    name: String,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
pub struct RotateKeyArgs {
    /// Name of the volume.
    name: String,
    /// Wait until all blocks have the new key, at most this many seconds; tells how far it is.
    #[arg(long, value_name = "SECS")]
    wait: Option<u64>,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs `azekura volume key`.
pub fn key(arguments: KeyArgs) -> Result<ExitCode, CliError> {
    let KeyArgs { name, api } = arguments;
    let view = api.client()?.ask::<VolumeKeyShow>([name], &NoQuery {})?;
    if api.json { print_json(&view) } else { print(&describe(&view)) }
}

/// Runs `azekura volume rotate-key`.
pub fn rotate_key(arguments: RotateKeyArgs) -> Result<ExitCode, CliError> {
    let RotateKeyArgs { name, wait, api } = arguments;
    let client = api.client()?;
    let mut view = client.ask::<VolumeKeyRotate>([name.clone()], &NoQuery {})?;
    if let Some(seconds) = wait {
        view = wait_for(&client, &name, Duration::from_secs(seconds))?;
    }
    if api.json {
        return print_json(&view);
    }
    let more = match (wait, is_done(&view)) {
        (Some(_), _) | (None, true) => String::new(),
        (None, false) => format!("It goes on by itself: azekura volume key {name}\n"),
    };
    print(&format!("{}{more}", describe(&view)))
}

/// All that volumes show is under the newest generation.
fn is_done(view: &VolumeKeyView) -> bool {
    let writes_with_newest = view.generations.last().is_some_and(|generation| generation.writing);
    writes_with_newest && view.volumes.iter().all(|volume| volume.done)
}

/// Looks until no block of a volume has a former key.
fn wait_for(client: &Client, name: &str, time: Duration) -> Result<VolumeKeyView, CliError> {
    let deadline = Instant::now() + time;
    let mut progress = Progress::new();
    loop {
        let view = client.ask::<VolumeKeyShow>([name.to_owned()], &NoQuery {})?;
        if is_done(&view) {
            return Ok(view);
        }
        let passes = view.volumes.iter().filter_map(|volume| volume.pass);
        let (done, all) = passes.fold((0, 0), |(done, all), pass| (done + pass.chunks_done, all + pass.chunks));
        match (all, &view.waits[..]) {
            (_, [first, ..]) => progress.tell(format!("waiting: {first}")),
            (0, _) => progress.tell("beginning".to_owned()),
            (all, _) => progress.part(done, all, format!("rekeying: {} of {all} chunks done", done)),
        }
        if Instant::now() + WAIT_STEP >= deadline {
            let why = view.waits.first().map(|why| format!("; {why}")).unwrap_or_default();
            let reason = format!("blocks still have the former key after {} s{why}", time.as_secs());
            return Err(CliError::new(reason).hint(format!("it goes on by itself: azekura volume key {name}")));
        }
        std::thread::sleep(WAIT_STEP);
    }
}

fn pass_text(pass: &RekeyPass) -> String {
    format!("{} of {} chunks, {} rewritten", pass.chunks_done, pass.chunks, Size::new(pass.bytes))
}

fn describe(view: &VolumeKeyView) -> String {
    let mut text = format!("Data key {}\n\n", view.id);
    let left = Align::Left;
    let mut table = Table::new(&["GENERATION", "WRAPPED BY", "SINCE", ""].map(|title| (title, left)));
    for generation in &view.generations {
        let writing = if generation.writing { "writes are encrypted with it" } else { "" };
        let fields = [&generation.number.to_string(), &generation.provider, &generation.created, writing];
        table.row(fields.map(str::to_owned).to_vec());
    }
    text += &table.render();
    if view.generations.len() > 1 {
        text.push('\n');
        let mut table = Table::new(&["VOLUME", "UNDER THE NEWEST"].map(|title| (title, left)));
        for RekeyView { name, done, pass } in &view.volumes {
            let how_far = match (done, pass) {
                (true, _) => "all of it".to_owned(),
                (false, Some(pass)) => pass_text(pass),
                (false, None) => "not all of it".to_owned(),
            };
            table.row(vec![name.clone(), how_far]);
        }
        text += &table.render();
    } else {
        let names: Vec<&str> = view.volumes.iter().map(|volume| volume.name.as_str()).collect();
        let _ = writeln!(text, "\nVolumes that have it: {}", names.join(", "));
    }
    for why in &view.waits {
        let _ = writeln!(text, "waits: {why}");
    }
    if !view.snapshots.is_empty() {
        let _ =
            writeln!(text, "former generations stay until these snapshots are deleted: {}", view.snapshots.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::KeyGenerationView;

    fn view() -> VolumeKeyView {
        let generation = |number, writing| KeyGenerationView {
            number,
            provider: "file".to_owned(),
            created: "2026-11-29T03:00:00Z".to_owned(),
            writing,
        };
        let pass = RekeyPass { chunks_done: 12, chunks: 256, bytes: 48 << 20 };
        let volume = |name: &str, done, pass| RekeyView { name: name.to_owned(), done, pass };
        VolumeKeyView {
            id: 5,
            generations: vec![generation(0, false), generation(1, true)],
            volumes: vec![volume("safe", false, Some(pass)), volume("test", true, None)],
            snapshots: vec!["safe@monday".to_owned()],
            waits: vec!["node n3: it does not answer".to_owned()],
        }
    }

    #[test]
    fn it_is_told_how_far_a_rotation_is_and_what_it_waits_for() {
        let text = describe(&view());
        for wanted in [
            "12 of 256 chunks, 48MiB rewritten",
            "all of it",
            "waits: node n3: it does not answer",
            "until these snapshots are deleted: safe@monday",
            "writes are encrypted with it",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        let one = VolumeKeyView { generations: view().generations.split_off(1), ..view() };
        assert!(describe(&one).contains("Volumes that have it: safe, test"));
    }

    #[test]
    fn a_rotation_is_done_when_no_volume_has_blocks_under_a_former_key() {
        assert!(!is_done(&view()));
        let mut done = view();
        done.volumes.iter_mut().for_each(|volume| volume.done = true);
        assert!(is_done(&done), "snapshots may need the former one");
        done.generations.iter_mut().for_each(|generation| generation.writing = generation.number == 0);
        assert!(!is_done(&done), "it is not written with yet");
    }
}
