//! Exports that clients ask for and this node does not know: the configuration may have them already, because another
//! node has just made them. It is read before a client hears that there is none (0009, point 6).

use std::collections::BTreeSet;

/// Whom it is being found out for.
#[derive(Debug)]
pub(crate) struct Missing<K> {
    /// The configuration is being read.
    looking: bool,
    /// Connections that it is read for.
    asked: BTreeSet<K>,
    /// Those that came after the reading had begun.
    next: BTreeSet<K>,
    /// What has been read is of this revision: this node has to know as much.
    awaited: Option<u64>,
    /// For these, what is not known is certainly not there.
    certain: BTreeSet<K>,
}

impl<K> Default for Missing<K> {
    fn default() -> Missing<K> {
        let (asked, next, certain) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Missing { looking: false, asked, next, awaited: None, certain }
    }
}

impl<K: Copy + Ord> Missing<K> {
    /// Whether what a connection asks for is certainly not there if this node does not know it.
    pub fn is_certain(&self, conn: K) -> bool {
        self.certain.contains(&conn)
    }

    /// The connection has its answer: another wish has to be found out about anew.
    pub fn answered(&mut self, conn: K) {
        self.certain.remove(&conn);
    }

    /// A connection has ended.
    pub fn forget(&mut self, conn: K) {
        for conns in [&mut self.asked, &mut self.next, &mut self.certain] {
            conns.remove(&conn);
        }
    }

    /// A client asks for an export that is not known here.
    pub fn ask(&mut self, conn: K) {
        if !self.asked.contains(&conn) {
            self.next.insert(conn);
        }
    }

    /// The configuration is to be read now, for those who have asked.
    #[must_use]
    pub fn begin(&mut self) -> bool {
        let begins = !self.looking && !self.next.is_empty();
        if begins {
            self.looking = true;
            self.asked = std::mem::take(&mut self.next);
        }
        begins
    }

    /// The configuration was read, and this node will know it up to `revision`. It could not be read: what this node
    /// knows now has to do.
    pub fn configuration_read(&mut self, revision: Option<u64>) {
        self.awaited = Some(revision.unwrap_or_default());
    }

    /// The node knows the configuration up to `revision`. Connections that are certain by that.
    #[must_use]
    pub fn known(&mut self, revision: u64) -> Vec<K> {
        if self.awaited.take_if(|awaited| *awaited <= revision).is_none() {
            return Vec::new();
        }
        self.looking = false;
        let asked = std::mem::take(&mut self.asked);
        self.certain.extend(&asked);
        asked.into_iter().collect()
    }
}
