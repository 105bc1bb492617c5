//! Publishing a volume to a node is an attachment that stays until it is taken away
//! (docs/decisions/0009-attachments.md).
//!
//! Taking it away is answered when no write of the node can be applied any more, also when the node does not answer. So
//! a volume of a dead node can be used elsewhere, and the node that comes back finds its attachment ended.

use azekura_api::endpoint::{VolumeAttach, VolumeDetach};
use azekura_api::{AttachVolume, DetachVolume, ErrorCode, VolumeView};
use tonic::{Code, Status};

use super::Controller;
use crate::capability::Use;
use crate::cluster::{absent, told};
use crate::proto::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse,
};
use crate::{Outcome, names};

/// Whether the volume is at the node already, as it is wanted; an error where it can't be.
fn is_published(volume: &VolumeView, node: &str, shared: bool) -> Outcome<bool> {
    let pinned = || volume.attachments.iter().filter(|entry| entry.pinned);
    if let Some(mine) = pinned().find(|entry| entry.node_name == node) {
        if mine.shared != shared {
            return Err(Status::already_exists(format!(
                "volume '{}' is published to {node} already, for {}: unpublish it first",
                volume.name,
                if mine.shared { "several nodes" } else { "this node alone" }
            )));
        }
        return Ok(!volume.fence_due);
    }
    match pinned().find(|entry| !(shared && entry.shared)) {
        None => Ok(false),
        Some(other) => Err(Status::failed_precondition(format!(
            "volume '{}' is published to {}: unpublish it there first, which is safe also when that node is dead",
            volume.name, other.node_name
        ))),
    }
}

impl Controller {
    pub(super) fn controller_publish_volume(
        &self,
        request: ControllerPublishVolumeRequest,
    ) -> Outcome<ControllerPublishVolumeResponse> {
        let name = names::volume_id(&request.volume_id)?;
        if request.node_id.is_empty() {
            return Err(Status::invalid_argument("the request names no node (node_id)"));
        }
        let shared = Use::read(request.volume_capability.as_ref())?.is_shared();
        let node = request.node_id.as_str();
        let _alone = self.locks.take([name])?;
        let found = self.cluster.known_volume(name)?;
        if is_published(&found, node, shared)? {
            return Ok(ControllerPublishVolumeResponse::default());
        }
        let attach = |force| {
            let body = AttachVolume { node: node.to_owned(), shared: Some(shared), force };
            self.cluster.send::<VolumeAttach>([name.to_owned()], &body)
        };
        let doing = format!("publishing volume '{name}' to {node}");
        let mut answer = attach(false)?;
        // Nothing that was published is in the way, only a client that has come by itself: one that was on a node from
        // which the volume was taken, and has connected again. It is put out.
        if matches!(&answer, Err(error) if error.code() == Some(ErrorCode::InUse)) {
            is_published(&self.cluster.known_volume(name)?, node, shared)?;
            answer = attach(true)?;
        }
        match answer {
            Ok(_) => Ok(ControllerPublishVolumeResponse::default()),
            Err(error) => {
                let status = told(&doing, &error);
                // A node that is away now may come back: that is no fault of the request.
                let away = error.code() == Some(ErrorCode::Conflict);
                Err(if away { Status::new(Code::Unavailable, status.message()) } else { status })
            }
        }
    }

    pub(crate) fn controller_unpublish_volume(
        &self,
        request: ControllerUnpublishVolumeRequest,
    ) -> Outcome<ControllerUnpublishVolumeResponse> {
        let name = names::volume_id(&request.volume_id)?;
        let _alone = self.locks.take([name])?;
        let done = ControllerUnpublishVolumeResponse {};
        let Some(found) = self.cluster.volume(name)? else { return Ok(done) };
        let node = Some(request.node_id).filter(|node| !node.is_empty());
        let is_there = found.attachments.iter().any(|entry| node.as_ref().is_none_or(|node| *node == entry.node_name));
        // An end that was not confirmed everywhere is asked for again.
        if !is_there && !found.fence_due {
            return Ok(done);
        }
        let doing = format!("unpublishing volume '{name}' from {}", node.as_deref().unwrap_or("every node"));
        // Kubernetes asks for this when its node has unstaged the volume, or is given up: then its clients are to be
        // cut off.
        let body = DetachVolume { node, force: true };
        let detached = self.cluster.send::<VolumeDetach>([name.to_owned()], &body)?;
        match detached {
            Ok(_) => Ok(done),
            Err(error) if absent(&error) => Ok(done),
            // Ended since by somebody else, as the volume tells.
            Err(error) if error.code() == Some(ErrorCode::Conflict) => match self.cluster.volume(name)? {
                Some(volume) if volume.fence_due => Err(told(&doing, &error)),
                _ => Ok(done),
            },
            Err(error) => Err(told(&doing, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(attachments: &[(&str, bool, bool)]) -> VolumeView {
        let attachments: Vec<_> = attachments
            .iter()
            .map(|(node_name, shared, pinned)| {
                json!({ "node": 1, "node_name": node_name, "generation": 1, "shared": shared, "pinned": pinned,
                        "in_use": false, "since": "" })
            })
            .collect();
        serde_json::from_value(json!({
            "name": "v", "id": 1, "uuid": "", "size_bytes": 4096, "class": "c", "copies": 2, "access": "exclusive",
            "generation": 1, "attachments": attachments, "fence_due": false, "ack_rule": "all", "created": "",
        }))
        .unwrap()
    }

    #[test]
    fn who_is_in_the_way() {
        let is = |attachments: &[_], shared| is_published(&volume(attachments), "n1", shared);
        assert!(!is(&[], false).unwrap());
        assert!(is(&[("n1", false, true)], false).unwrap());
        assert!(is(&[("n1", true, true), ("n2", true, true)], true).unwrap());
        assert!(!is(&[("n2", true, true)], true).unwrap());
        // A client that came by itself is no publication.
        assert!(!is(&[("n2", false, false)], false).unwrap());
        assert_eq!(is(&[("n1", false, true)], true).unwrap_err().code(), Code::AlreadyExists);
        for (there, shared) in [(false, false), (false, true), (true, false)] {
            let refused = is(&[("n2", there, true)], shared).unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition);
            assert!(refused.message().contains("n2"), "{}", refused.message());
        }
    }
}
