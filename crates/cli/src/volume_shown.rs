//! Volumes as people read them: a table, and one with all that is known of it.

use azekura_api::VolumeView;
use azekura_base::Size;

use super::endpoints;
use super::scrub::last_scrubs;
use super::table::{Align, Table};

/// Volumes, a line each.
pub fn table(volumes: &[VolumeView]) -> String {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("SIZE", Align::Right),
        ("COPIES", Align::Right),
        ("CLASS", Align::Left),
        ("ACCESS", Align::Left),
        ("ENCRYPTED", Align::Left),
        ("ATTACHED", Align::Left),
        ("CREATED", Align::Left),
    ]);
    for volume in volumes {
        table.row(vec![
            volume.name.clone(),
            size(volume).to_string(),
            volume.copies.to_string(),
            volume.class.clone(),
            volume.access.to_string(),
            encryption(volume).to_owned(),
            attached_to(volume),
            volume.created.clone(),
        ]);
    }
    table.render()
}

/// The size of a volume.
pub fn size(volume: &VolumeView) -> Size {
    Size::new(volume.size_bytes)
}

/// The nodes that have a volume, each once: the one that writes for a host before those that it reads through.
fn attached_to(volume: &VolumeView) -> String {
    let mut nodes: Vec<&str> = Vec::new();
    let (writing, reading): (Vec<_>, Vec<_>) = volume.attachments.iter().partition(|entry| !entry.reads_only);
    for entry in writing.into_iter().chain(reading) {
        if !nodes.contains(&entry.node_name.as_str()) {
            nodes.push(&entry.node_name);
        }
    }
    nodes.join(",")
}

fn encryption(volume: &VolumeView) -> &'static str {
    match (volume.encrypted, &volume.key_missing) {
        (false, _) => "no",
        (true, None) => "yes",
        (true, Some(_)) => "no key here",
    }
}

/// A volume, with all that is known of it.
pub fn describe(volume: &VolumeView) -> String {
    let mut text = format!(
        "  name     {}\n  size     {} ({} bytes)\n  blocks   of {} bytes, for clients\n  copies   {} (class {})\n  ack      {}\n  access   {}\n  created  {}\n  uuid     {}\n",
        volume.name,
        size(volume),
        volume.size_bytes,
        volume.logical_block_bytes,
        volume.copies,
        volume.class,
        volume.ack_rule,
        volume.access,
        volume.created,
        volume.uuid
    );
    if let Some(home) = &volume.home {
        text += &format!("  home     {home}\n");
    }
    for entry in &volume.attachments {
        let kind = if entry.shared { "shared" } else { "exclusive" };
        let until = if entry.pinned { "until it is detached" } else { "while its clients use it" };
        let path = match (&entry.host, entry.reads_only) {
            (None, _) => String::new(),
            (Some(host), false) => format!(", for {host}"),
            (Some(host), true) => format!(", for {host}, which writes through another node"),
        };
        text += &format!("  attached {} since {}, {kind}, {until}{path}\n", entry.node_name, entry.since);
    }
    if volume.encrypted {
        text += match volume.key_provider.as_deref() {
            Some("csi") => "  encrypted with a key of its own, which its secret opens\n",
            _ => "  encrypted with a key of its own\n",
        };
    }
    if let Some(why) = &volume.key_missing {
        text += &format!("  warning  the node that answers does not serve it, for want of its key: {why}\n");
    }
    if let Some(source) = &volume.source {
        text += &format!("  from     {source}\n");
    }
    let named = if volume.snapshots == 1 { "snapshot" } else { "snapshots" };
    match &volume.protection {
        Some(protection) => text += &format!("  protect  {}; {} {named}\n", protection, volume.snapshots),
        None if volume.snapshots > 0 => text += &format!("  {named:<8} {}\n", volume.snapshots),
        None => {}
    }
    if let Some(limits) = &volume.limits {
        text += &format!("  limited  to {limits}\n");
    }
    if volume.fence_due {
        text += "  warning  former users are not kept out everywhere yet; attach it again\n";
    }
    if let Some(last) = &volume.scrubbed {
        text += &format!("  scrub    {}\n", last_scrubs(last));
    }
    text + &endpoints::lines(&volume.endpoints)
}
