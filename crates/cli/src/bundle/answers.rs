//! What the API tells: the parts of a bundle that one node has of the whole cluster, and each node's metrics.

use azekura_api::endpoint::{
    AuditShow, AuthorityShow, ClassList, DeviceList, GrantList, GroupList, JobList, KekShow, Metrics, NodeList,
    ProjectList, SettingsShow, SnapshotList, Space, Stats, Status, TargetList, VolumeList, Whoami,
};
use azekura_api::{AuditQuery, Endpoint, NoBody, NoQuery, NodeView};
use azekura_client::{Client, ClientError, Trust};
use serde::Serialize;

use super::archive::{Bundle, Keep};
use super::slow::Slow;
use crate::{ApiArgs, CliError, login};

/// What is asked for first: where that finds nobody, nothing else is asked for.
const FIRST: &str = "whoami";

/// Asks one node for all parts. Once it does not answer, it is asked for nothing more.
struct Asker<'a> {
    bundle: &'a mut Bundle,
    client: Client,
    slow: &'a Slow,
    /// Why it is not asked any more.
    gone: Option<String>,
    /// The first refusal.
    refused: Option<CliError>,
}

/// Takes in what the API tells; why nothing was had at first, if something was not.
pub fn collect(bundle: &mut Bundle, api: &ApiArgs, hours: u32, slow: &Slow) -> Option<CliError> {
    slow.tell("asking the API");
    let client = match api.client() {
        Ok(client) => client,
        Err(error) => {
            bundle.lacks("cluster", error.message());
            return Some(error);
        }
    };
    let mut asker = Asker { bundle, client, slow, gone: None, refused: None };
    asker.cluster(hours);
    asker.refused
}

impl Asker<'_> {
    fn cluster(&mut self, hours: u32) {
        self.one::<Whoami>(FIRST, "As whom the command asked");
        if let Some(why) = &self.gone {
            return self.bundle.lacks("cluster", why);
        }
        self.one::<Status>("status", "What 'azekura status' says: whether all is well");
        let nodes = self.part("nodes", "The nodes", |client| client.ask_all::<NodeList, _>([]));
        self.one::<DeviceList>("devices", "The devices");
        self.one::<GroupList>("groups", "The placement groups, their copies and scrubs");
        self.one::<ClassList>("classes", "The storage classes");
        self.part("volumes", "The volumes", |client| client.ask_all::<VolumeList, _>([]));
        self.part("snapshots", "The snapshots", |client| client.ask_all::<SnapshotList, _>([]));
        self.one::<TargetList>("targets", "The iSCSI targets of several units");
        self.one::<ProjectList>("projects", "The projects and their quotas");
        self.one::<GrantList>("grants", "Who may what: tokens, keys and hosts, without what proves them");
        self.one::<Space>("space", "Where the space is");
        self.one::<JobList>("jobs", "What takes long and is at work");
        self.one::<SettingsShow>("settings", "The cluster's settings");
        self.one::<KekShow>("keks", "Which nodes have which versions of the wrapping keys: nothing of the keys");
        self.one::<AuthorityShow>("authority", "The certificate authority: its number and age");
        self.one::<Stats>("stats", "Counters of every node, from which 'azekura top' makes rates");
        let what = format!("Who has changed what in the last {hours} hours, without what was sent");
        self.part("audit", &what, |client| audit(client, hours));
        self.metrics(&nodes.unwrap_or_default());
    }

    /// Something that one answer tells.
    fn one<E>(&mut self, part: &str, what: &str)
    where
        E: Endpoint<Query = NoQuery, Body = NoBody, Names = [String; 0]>,
        E::Answer: Serialize,
    {
        self.part(part, what, |client| client.ask::<E>([], &NoQuery {}));
    }

    fn part<T: Serialize>(
        &mut self,
        part: &str,
        what: &str,
        ask: impl FnOnce(&Client) -> Result<T, ClientError>,
    ) -> Option<T> {
        let file = format!("cluster/{part}.json");
        if let Some(why) = &self.gone {
            self.bundle.lacks(&file, why);
            return None;
        }
        self.slow.tell(&format!("asking for {part}"));
        match ask(&self.client) {
            Ok(answer) => {
                self.bundle.answer(part, &file, what, &answer);
                Some(answer)
            }
            Err(error) => {
                let why = error.to_string();
                if !matches!(error, ClientError::Failed(_) | ClientError::Foreign { .. }) {
                    self.gone = Some(why.clone());
                }
                // Of the first one it is said for all.
                if self.gone.is_none() || part != FIRST {
                    self.bundle.lacks(&file, &why);
                }
                self.refused.get_or_insert_with(|| error.into());
                None
            }
        }
    }

    /// The metrics of each node that answers.
    fn metrics(&mut self, nodes: &[NodeView]) {
        let authority = self.client.ask::<AuthorityShow>([], &NoQuery {});
        let authority = authority.ok().map(|shown| shown.certificate).filter(|_| self.client.is_private());
        let own = if self.gone.is_some() { None } else { self.client.ask::<Metrics>([], &NoQuery {}).ok() };
        for node in nodes.iter().filter(|node| !node.removed) {
            let file = format!("nodes/{}.metrics.txt", file_name(&node.name));
            self.slow.tell(&format!("asking {} for its metrics", node.name));
            let mine = own.as_ref().filter(|own| is_of(&own.0, &node.name)).map(|own| own.0.clone());
            let told = match mine {
                Some(text) => Ok(text),
                None if !node.alive => Err(format!("{} is away: it gives no sign of life", node.name)),
                None => of_node(node, authority.as_deref()),
            };
            match told {
                Ok(text) => self.bundle.text(&file, &format!("Metrics of {}", node.name), &text, Keep::Beginning),
                Err(why) => self.bundle.lacks(&file, &why),
            }
        }
    }
}

/// The audit of the last hours, whole.
fn audit(client: &Client, hours: u32) -> Result<Vec<azekura_api::AuditEntry>, ClientError> {
    let since = Some(format!("{hours} hours ago"));
    let (mut query, mut records) = (AuditQuery { since, ..AuditQuery::default() }, Vec::new());
    loop {
        let page = client.ask::<AuditShow>([], &query)?;
        records.extend(page.records);
        match page.next {
            next if next.is_none() || next == query.after => return Ok(records),
            next => query.after = next,
        }
    }
}

/// What another node says. It is shown a token that is for it, or that a file has for all; where the authority is known
/// from one that is trusted, the node has to prove itself by that first.
fn of_node(node: &NodeView, authority: Option<&str>) -> Result<String, String> {
    let scheme = if authority.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", node.api_address);
    let client = login::client(&url).map_err(|error| error.message().to_owned())?;
    let client = match authority {
        Some(pem) => client.trusting(&Trust::Certificate(pem.to_owned())).map_err(|error| error.to_string())?,
        None => client,
    };
    let text = client.ask::<Metrics>([], &NoQuery {}).map_err(|error| match error {
        ClientError::Failed(body) => format!("{url}: {}; log in there, or set AZEKURA_TOKEN_FILE", body.message),
        other => other.to_string(),
    })?;
    if !is_of(&text.0, &node.name) {
        return Err(format!("{url}, the address of {}, leads to another node from here", node.name));
    }
    Ok(text.0)
}

/// Whether metrics are of this node.
fn is_of(metrics: &str, node: &str) -> bool {
    let label = format!("node=\"{}\"", node.replace('\\', "\\\\").replace('"', "\\\""));
    metrics.lines().any(|line| line.starts_with("azekura_build_info{") && line.contains(&label))
}

/// A name as that of a file.
fn file_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let text: String = name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if text.trim_matches('.').is_empty() { format!("node{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_say_whose_they_are() {
        let text = "# HELP x\nazekura_build_info{version=\"1\",node=\"n1\"} 1\nazekura_x{node=\"n2\"} 1\n";
        assert!(is_of(text, "n1") && !is_of(text, "n2") && !is_of(text, "n"));
    }

    #[test]
    fn a_name_of_a_node_leads_to_no_other_folder() {
        assert_eq!(file_name("../n 1/ä"), ".._n_1__");
        assert_eq!(file_name(".."), "node..");
    }
}
