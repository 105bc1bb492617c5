//! Long requests, given out in parts and answered once.

use crate::PART_MAX;
use crate::reply::ErrorCode;
use crate::request::Header;

/// The request that a part belongs to, among those of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole(usize);

#[derive(Debug, Default)]
struct Parted {
    /// Parts that have been given out and not been answered.
    under: usize,
    /// No further part will be given out.
    all_out: bool,
    /// What went wrong first.
    error: Option<(ErrorCode, String)>,
}

/// What is known after a part's answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Other parts are not answered yet.
    Unfinished,
    /// That was the last one, and all went well.
    Done,
    /// That was the last one, and this went wrong.
    Failed(ErrorCode, String),
}

/// The requests of a session that are under way in parts.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    requests: Vec<Option<Parted>>,
}

impl Parts {
    /// A new request.
    pub fn begin(&mut self) -> Whole {
        let free = self.requests.iter().position(Option::is_none).unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        self.requests[free] = Some(Parted::default());
        Whole(free)
    }

    /// A part is given out; `last` when it is the request's last.
    pub fn give_out(&mut self, whole: Whole, last: bool) {
        let parted = self.at(whole);
        parted.under += 1;
        parted.all_out = last;
    }

    /// A part is answered, with an error or without.
    pub fn answered(&mut self, whole: Whole, error: Option<(ErrorCode, &str)>) -> Progress {
        let parted = self.at(whole);
        parted.under -= 1;
        if let Some((code, message)) = error
            && parted.error.is_none()
        {
            parted.error = Some((code, message.to_owned()));
        }
        if parted.under > 0 || !parted.all_out {
            return Progress::Unfinished;
        }
        match self.requests[whole.0].take().and_then(|parted| parted.error) {
            Some((code, message)) => Progress::Failed(code, message),
            None => Progress::Done,
        }
    }

    fn at(&mut self, whole: Whole) -> &mut Parted {
        self.requests[whole.0].as_mut().expect("a request is there until its last part is answered")
    }
}

/// The part of a request that begins `at` bytes behind its start: as a request of its own.
pub(crate) fn part(header: &Header, at: u32) -> Header {
    let offset = header.offset + u64::from(at);
    let room = PART_MAX - (offset % u64::from(PART_MAX)) as u32;
    Header { offset, length: room.min(header.length - at), ..*header }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_and_end_at_multiples() {
        let header = Header { flags: 0, command: 0, cookie: 7, offset: 1000, length: 2 * PART_MAX };
        let mut at = 0;
        let mut lengths = Vec::new();
        while at < header.length {
            let part = part(&header, at);
            assert_eq!((part.offset, part.cookie), (1000 + u64::from(at), 7));
            at += part.length;
            lengths.push(part.length);
        }
        assert_eq!(lengths, [PART_MAX - 1000, PART_MAX, 1000]);
    }

    #[test]
    fn the_first_error_is_told_at_the_end() {
        let mut parts = Parts::default();
        let (one, two) = (parts.begin(), parts.begin());
        parts.give_out(one, false);
        assert_eq!(parts.answered(one, None), Progress::Unfinished, "more will come");
        parts.give_out(one, false);
        parts.give_out(two, true);
        parts.give_out(one, true);
        assert_eq!(parts.answered(one, Some((ErrorCode::Io, "first"))), Progress::Unfinished);
        assert_eq!(parts.answered(two, None), Progress::Done);
        let failed = Progress::Failed(ErrorCode::Io, "first".into());
        assert_eq!(parts.answered(one, Some((ErrorCode::NoSpace, "second"))), failed);
        assert_eq!(parts.begin(), one, "the place is used again");
    }
}
