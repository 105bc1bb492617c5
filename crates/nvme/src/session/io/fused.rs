//! Compare and Write, fused (Base section 3.4.2, NVM section 3.2.7): two commands that follow each other on a queue,
//! and are one request.
//!
//! The first waits for the second before it asks for memory, and asks for that of both. So none holds memory while it
//! waits for more.

use super::Io;
use crate::command::{Entry, Fuse};
use crate::completion::Status;
use crate::session::plan::{Plan, Use};
use crate::session::task::Task;
use azekura_base::Outbox;
use azekura_frontend::Request;

/// What the next command of the queue may be the second to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Fused {
    /// Nothing.
    #[default]
    None,
    /// This first one.
    Waits(u16),
    /// A first one that has been completed with an error.
    Failed,
}

impl Io {
    /// Looks at which part of a fused operation a command is. Gives what is to be done with it: one that is fused is
    /// put among the tasks here.
    pub(super) fn fuse(
        &mut self,
        entry: &Entry,
        began: Result<Option<Task>, Status>,
        outbox: &mut Outbox,
    ) -> Result<Option<Task>, Status> {
        let (fuse, before) = (entry.fuse().unwrap_or(Fuse::No), std::mem::take(&mut self.fused));
        match (fuse, before) {
            (Fuse::No, Fused::None | Fused::Failed) => return began,
            // The command after a first one is to be its second.
            (Fuse::No | Fuse::First, Fused::Waits(first)) => self.fail_first(first, Status::FUSED_MISSING, outbox),
            _ => {}
        }
        match (fuse, before, began) {
            (Fuse::No, _, began) => began,
            (Fuse::First, _, Ok(Some(task))) => {
                self.tasks.insert(entry.id(), task);
                self.fused = Fused::Waits(entry.id());
                Ok(None)
            }
            (Fuse::First, _, began) => {
                self.fused = Fused::Failed;
                began
            }
            (Fuse::Second, Fused::Waits(first), Ok(Some(task))) if self.is_second_to(first, &task) => {
                self.pair(first, entry.id(), task);
                Ok(None)
            }
            (Fuse::Second, Fused::Waits(first), began) => {
                self.fail_first(first, Status::FUSED_FAILED, outbox);
                self.let_go(began.as_ref().ok().and_then(Option::as_ref));
                Err(began.err().unwrap_or(Status::INVALID_FIELD))
            }
            (Fuse::Second, before, began) => {
                self.let_go(began.as_ref().ok().and_then(Option::as_ref));
                let has_failed = matches!(before, Fused::Failed);
                Err(if has_failed { Status::FUSED_FAILED } else { Status::FUSED_MISSING })
            }
        }
    }

    /// Both are of the same blocks.
    fn is_second_to(&self, first: u16, second: &Task) -> bool {
        match (self.tasks.get(&first).map(|task| task.plan), second.plan) {
            (Some(Plan::Take(expected, Use::Expect(at))), Plan::Take(len, Use::Replace(offset))) => {
                (expected, at) == (len, offset)
            }
            _ => false,
        }
    }

    fn pair(&mut self, first: u16, second: u16, mut task: Task) {
        task.fused = Some(first);
        self.tasks.insert(second, task);
        if let Some(first) = self.tasks.get_mut(&first) {
            first.fused = Some(second);
        }
        self.line.push_back(first);
    }

    fn fail_first(&mut self, first: u16, status: Status, outbox: &mut Outbox) {
        let task = self.tasks.remove(&first);
        self.let_go(task.as_ref());
        // One that has failed meanwhile says why.
        let status = task.and_then(|task| task.failure).unwrap_or(status);
        self.link.complete(outbox, first, status, 0);
    }

    /// The data of a task that is none is dropped.
    fn let_go(&mut self, task: Option<&Task>) {
        self.parked -= task.filter(|task| task.is_parked).map_or(0, |task| task.data.wanted);
    }

    /// The first has memory for both: the data of each comes now, or is there.
    pub(super) fn ask_for_both(&mut self, first: u16, outbox: &mut Outbox) {
        let both = [Some(first), self.tasks.get(&first).and_then(|task| task.fused)];
        let mut is_whole = true;
        for id in both.into_iter().flatten() {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            if std::mem::take(&mut task.is_parked) {
                self.parked -= task.data.wanted;
            }
            if !task.data.is_complete() {
                is_whole = false;
                self.ask_for_data(id, outbox);
            }
        }
        if is_whole {
            self.ready.push_back(first);
        }
    }

    /// All data of one of them has come.
    pub(super) fn fused_data(&mut self, id: u16) {
        let Some((task, other)) = self.tasks.get(&id).and_then(|task| Some((task, task.fused?))) else { return };
        let (is_torn, is_first) = (task.data.is_torn, matches!(task.plan, Plan::Take(_, Use::Expect(_))));
        let first = if is_first { id } else { other };
        if let Some(task) = self.tasks.get_mut(&first).filter(|_| is_torn) {
            task.fail(Status::TRANSIENT_TRANSPORT_ERROR);
        }
        if self.tasks.get(&other).is_some_and(|task| task.data.is_complete()) {
            self.ready.push_back(first);
        }
    }

    /// The request that both are, of the first one.
    pub(super) fn fused_request(&mut self, first: u16) -> Option<Request> {
        let task = self.tasks.get_mut(&first).filter(|task| task.failure.is_none())?;
        let Plan::Take(_, Use::Expect(offset)) = task.plan else { return None };
        let (expected, second) = (task.data.finish(), task.fused?);
        // The rights of a write are more than those of a compare, and may have been lost.
        let second = self.tasks.get_mut(&second)?;
        let (failure, bytes, kind) = (second.failure, second.data.finish(), second.kind);
        match failure.map_or_else(|| self.check_rights(kind), Err) {
            Ok(()) => Some(Request::CompareAndWrite { offset, expected, bytes }),
            Err(status) => {
                self.tasks.get_mut(&first)?.fail(status);
                None
            }
        }
    }
}
