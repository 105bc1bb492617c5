//! The cluster's settings.

use azekura_api::endpoint::{SettingsChange, SettingsShow};
use azekura_api::{ChangeSettings, SettingsView};
use azekura_meta::cluster;
use azekura_model::SettingsRecord;

use super::call::{Answer, Call};

fn view(record: SettingsRecord) -> SettingsView {
    SettingsView {
        rehome_after_seconds: record.rehome_after_seconds,
        follow_after_seconds: record.follow_after_seconds,
        moves_at_once: record.moves_at_once,
        nearly_full_percent: record.nearly_full_percent,
        full_percent: record.full_percent,
        transport: record.transport,
        api_access: record.api_access,
    }
}

pub(super) async fn show(Call { api, .. }: Call<SettingsShow>) -> Answer<SettingsShow> {
    Ok(view(api.meta.model().settings()).into())
}

pub(super) async fn change(Call { api, body, .. }: Call<SettingsChange>) -> Answer<SettingsChange> {
    let ChangeSettings {
        rehome_after_seconds,
        follow_after_seconds,
        moves_at_once,
        nearly_full_percent,
        full_percent,
        transport,
        api_access,
    } = body;
    let change = cluster::SettingsChange {
        rehome_after_seconds,
        follow_after_seconds,
        moves_at_once,
        nearly_full_percent,
        full_percent,
        transport,
        api_access,
    };
    Ok(view(api.meta.change_settings(change).await?).into())
}
