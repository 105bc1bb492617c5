//! A machine becomes a node with a join token.

use crate::args::NodeArgs;
use anyhow::{Context, Result, anyhow, ensure};
use azekura_api::JoinCluster;
use azekura_base::{JoinToken, PeerKey};
use azekura_meta::MetaClient;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A token's file is not larger, bytes.
const FILE_BYTES_MAX: u64 = 4_096;

/// Who this machine says that it is.
pub(crate) fn machine(args: &NodeArgs, name: &str, uuid: &str, key: PeerKey) -> JoinCluster {
    JoinCluster {
        name: name.to_owned(),
        uuid: uuid.to_owned(),
        key,
        data_address: args.listen,
        api_address: args.api,
        site: args.site.clone(),
        rack: args.rack.clone(),
        cluster: None,
    }
}

/// Asks a node of the cluster to take this machine in, if that is wanted and it is no node yet. `cluster`: the one
/// whose configuration it has read.
pub(crate) async fn join(client: &MetaClient, args: &NodeArgs, machine: &JoinCluster, cluster: &str) -> Result<()> {
    if client.model().nodes.values().any(|node| node.uuid == machine.uuid) {
        return Ok(());
    }
    ask(args, &JoinCluster { cluster: Some(cluster.to_owned()), ..machine.clone() }).await
}

/// The same where that can't be seen yet.
pub(crate) async fn ask(args: &NodeArgs, machine: &JoinCluster) -> Result<()> {
    let (Some(url), Some(file)) = (&args.join, &args.token_file) else { return Ok(()) };
    let token = token(file)?;
    let joined = azekura_control::join(url, &token, machine).await;
    let joined =
        joined.map_err(|reason| anyhow!("the cluster has not taken this machine in (--join {url}): {reason}"))?;
    tracing::info!("this machine is node {} of cluster {}; the token is used up", joined.node, joined.cluster);
    Ok(())
}

fn token(file: &Path) -> Result<JoinToken> {
    read(file).with_context(|| format!("can't use {} (--token-file)", file.display()))
}

/// The authority of the cluster that the token in this file is from; `None`: the file is gone, as it may be when the
/// token is used up.
pub(crate) fn authority(file: &Path) -> Result<Option<PeerKey>> {
    if !file.exists() {
        return Ok(None);
    }
    Ok(Some(token(file)?.authority))
}

fn read(path: &Path) -> Result<JoinToken> {
    let file = std::fs::File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    ensure!(
        mode & 0o077 == 0,
        "others can read it, and it has a token: chmod 600 {}; if somebody may have read it, revoke the token",
        path.display()
    );
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(JoinToken::read(text.trim())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::{GrantId, PeerKey, Secret, Token};
    use std::fs::{Permissions, set_permissions, write};

    #[test]
    fn a_tokens_file_is_its_owners_and_has_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token { id: GrantId(1), secret: Secret([2; 32]) };
        let token = JoinToken { token, authority: PeerKey([3; 32]) };
        assert!(read(&path).is_err());
        write(&path, token.reveal() + "\n").unwrap();
        set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("chmod 600"));
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap(), token);
        write(&path, &token.reveal()[..50]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("was it cut?"));
    }
}
