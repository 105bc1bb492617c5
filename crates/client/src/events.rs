//! Server-sent events as they come (WHATWG HTML, section 9.2.6).
//!
//! Lines end with LF or CR LF; a CR alone, which no node sends, is a part of its line.

use std::fmt;
use std::io::{self, BufRead, Read};

/// Longest event, bytes: more than any thing of the API has.
pub const EVENT_BYTES_MAX: usize = 1 << 20;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Up to where the stream was told: a client that comes again names it.
    pub id: String,
    /// What has happened.
    pub event: String,
    /// To what.
    pub data: String,
}

/// Reads events.
pub struct EventReader {
    stream: Box<dyn BufRead + Send>,
    id: String,
}

impl fmt::Debug for EventReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventReader").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A line too long, or an event of too many.
fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("an event has more than {EVENT_BYTES_MAX} bytes"))
}

impl EventReader {
    /// From this stream.
    pub fn new(stream: impl BufRead + Send + 'static) -> EventReader {
        EventReader { stream: Box::new(stream), id: String::new() }
    }

    /// Up to where all was told: the last id that came, also without an event. Empty: none has come.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Waits for an event; `None`: the stream has ended.
    ///
    /// # Errors
    /// When the stream breaks, or has an event of more than [`EVENT_BYTES_MAX`].
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        let (mut event, mut data, mut id) = (String::new(), None::<String>, None);
        let mut bytes = 0;
        loop {
            let Some(line) = self.line(EVENT_BYTES_MAX.saturating_sub(bytes))? else { return Ok(None) };
            bytes += line.len() + 1;
            if line.is_empty() {
                if let Some(id) = id.take() {
                    self.id = id;
                }
                if let Some(data) = data.take() {
                    let event = if event.is_empty() { "message".to_owned() } else { event };
                    return Ok(Some(Event { id: self.id.clone(), event, data }));
                }
                event.clear();
                bytes = 0;
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut event),
                "id" if !value.contains('\0') => id = Some(value.to_owned()),
                "data" => match &mut data {
                    Some(data) => data.extend(["\n", value]),
                    None => data = Some(value.to_owned()),
                },
                // A comment, or a field that this version does not know.
                _ => {}
            }
        }
    }

    /// A line without its end; `None`: the stream has ended, perhaps within a line, which counts for nothing.
    fn line(&mut self, bytes_max: usize) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let limit = bytes_max as u64 + 1;
        self.stream.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if line.pop_if(|last| *last == b'\n').is_none() {
            return if line.len() as u64 == limit { Err(too_long()) } else { Ok(None) };
        }
        line.pop_if(|last| *last == b'\r');
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::write_event;
    use proptest::prelude::*;

    fn all(stream: &[u8]) -> io::Result<(Vec<Event>, String)> {
        let mut reader = EventReader::new(io::Cursor::new(stream.to_vec()));
        let mut events = Vec::new();
        while let Some(event) = reader.next_event()? {
            events.push(event);
        }
        Ok((events, reader.id))
    }

    fn event(id: &str, event: &str, data: &str) -> Event {
        Event { id: id.to_owned(), event: event.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn a_stream_as_the_standard_has_it() {
        let stream = ": first\n\ndata: one\nid: 1\n\ndata:two\nid\n\ndata: a\r\ndata:  b\r\nevent: x\r\nretry: 5\r\n\r\nid: 7\n\n\
                      data: cut off";
        let (events, id) = all(stream.as_bytes()).unwrap();
        assert_eq!(events, [event("1", "message", "one"), event("", "message", "two"), event("", "x", "a\n b")]);
        assert_eq!(id, "7", "an id without an event counts as well");
    }

    #[test]
    fn an_id_counts_when_its_event_is_whole() {
        let (events, id) = all(b"id: 1\ndata: x\n\nid: 2\ndata: y\n").unwrap();
        assert_eq!((events.len(), id.as_str()), (1, "1"));
    }

    #[test]
    fn an_event_without_an_end_takes_no_more_memory_than_one() {
        let endless = io::repeat(b'x');
        let error = EventReader::new(io::BufReader::new(endless)).next_event().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let lines = b"data: x\n".repeat(EVENT_BYTES_MAX / 8 + 1);
        assert_eq!(all(&lines).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let comments = b":\n\n".repeat(EVENT_BYTES_MAX);
        assert_eq!(all(&comments).unwrap().0, []);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read(stream in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = all(&stream);
        }

        #[test]
        fn what_was_written_is_read(written in proptest::collection::vec(("[0-9]{1,8}", "[a-z.]{1,9}", "[^\r\n]{0,40}"), 0..9)) {
            let mut stream = String::new();
            written.iter().for_each(|(id, name, data)| write_event(&mut stream, id, name, data));
            let (events, _) = all(stream.as_bytes()).unwrap();
            let expected: Vec<Event> = written.iter().map(|(id, name, data)| event(id, name, data)).collect();
            prop_assert_eq!(events, expected);
        }
    }
}
