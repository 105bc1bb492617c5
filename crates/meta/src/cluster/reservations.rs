//! Reservations of volumes: one record each, changed by compare-and-swap.

use azekura_base::{NodeId, VolumeId};
use azekura_model::transitions::reservations as transitions;
use azekura_model::{MetaError, Records, RegistrantName, ReservationCommand, ReservationOutcome, ReservationsRecord};

use super::MetaClient;

impl MetaClient {
    /// A volume's reservations as they are, and a revision from which on they are so.
    pub async fn reservations_of(&self, volume: &str, id: VolumeId) -> Result<(ReservationsRecord, i64), MetaError> {
        self.run("reading reservations", |records| transitions::read_reservations(records, volume, id)).await
    }

    /// Carries a registrant's command out. `number`: 64 random bits, the same whenever this command is tried, and no
    /// other's.
    pub async fn change_reservations(
        &self,
        volume: &str,
        id: VolumeId,
        from: &RegistrantName,
        command: &ReservationCommand,
        number: u64,
    ) -> Result<ReservationOutcome, MetaError> {
        let change =
            |records: &Records<'_>| transitions::change_reservations(records, volume, id, from, command, number);
        self.run("changing reservations", change).await.map(|(outcome, _)| outcome)
    }

    /// Notes that a process (node and incarnation) heeds all changes up to this one.
    pub async fn heed_reservations(
        &self,
        volume: &str,
        id: VolumeId,
        process: (NodeId, u64),
        number: u64,
    ) -> Result<(), MetaError> {
        let heed = |records: &Records<'_>| transitions::heed_reservations(records, volume, id, process, number);
        self.run("confirming reservations", heed).await.map(|((), _)| ())
    }

    /// Notes that nothing is under way any more that was begun by rights from before the change of this number.
    pub async fn confirm_reservations(&self, volume: &str, id: VolumeId, number: u64) -> Result<(), MetaError> {
        let confirm = |records: &Records<'_>| transitions::confirm_reservations(records, volume, id, number);
        self.run("confirming reservations", confirm).await.map(|((), _)| ())
    }
}
