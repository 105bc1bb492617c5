//! Lists a page at a time. A page begins behind a name: what comes and goes between two pages moves nothing else.

use tonic::Status;

use crate::Outcome;

/// What begins a token, so that another's is noticed.
const MARK: &str = "after:";

/// A page of all, by the order of their keys, and the token of the next one.
pub(crate) fn page<T>(
    all: Vec<T>,
    key: impl Fn(&T) -> String,
    token: &str,
    entries_max: i32,
) -> Outcome<(Vec<T>, String)> {
    let Ok(most) = usize::try_from(entries_max) else {
        return Err(Status::invalid_argument(format!("max_entries is {entries_max}: not less than 0")));
    };
    let after = match token.strip_prefix(MARK) {
        Some(after) => after,
        None if token.is_empty() => "",
        None => {
            let reason = format!("'{token}' is no token of this driver: ask for the list from its beginning");
            return Err(Status::aborted(reason));
        }
    };
    let mut rest: Vec<T> = all.into_iter().filter(|entry| key(entry).as_str() > after).collect();
    rest.sort_by_key(&key);
    let more = most > 0 && rest.len() > most;
    if more {
        rest.truncate(most);
    }
    let next = rest.last().filter(|_| more).map_or_else(String::new, |last| format!("{MARK}{}", key(last)));
    Ok((rest, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_whatever_goes_between() {
        let list = |names: &str, token: &str, most| {
            let all = names.split_whitespace().map(str::to_owned).collect();
            page(all, String::clone, token, most)
        };
        let (first, next) = list("a b c d", "", 2).unwrap();
        assert_eq!(first, ["a", "b"]);
        assert_eq!(list("a b0 c d", &next, 2).unwrap(), (vec!["b0".to_owned(), "c".to_owned()], "after:c".to_owned()));
        assert_eq!(list("d", &next, 2).unwrap(), (vec!["d".to_owned()], String::new()));
        assert_eq!(list("a b", "", 2).unwrap().1, "");
        assert_eq!(list("a b", "", 0).unwrap().0.len(), 2);
        assert_eq!(list("a", "invalid", 0).unwrap_err().code(), tonic::Code::Aborted);
        assert_eq!(list("a", "", -1).unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}
