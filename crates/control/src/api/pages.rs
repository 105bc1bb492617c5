//! Lists a page at a time.
//!
//! A page begins behind a thing's place in the list's order, not behind the thing: that may be gone by then.

use azekura_api::{ErrorCode, PAGE_MAX, PageQuery};

use super::error::ApiError;

/// A part of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page<T> {
    pub(super) things: Vec<T>,
    /// Where the next one begins; `None`: this is the last.
    pub(super) next: Option<String>,
}

/// The page that is asked for, of a list in the order of the places that `place` gives; `read` and `write` make a place
/// of a text and back.
///
/// # Errors
/// When the query has a size that no page has, or begins at what is no place.
pub(super) fn page<T, P: Ord>(
    query: &PageQuery,
    all: impl Iterator<Item = T>,
    place: impl Fn(&T) -> P,
    read: impl Fn(&str) -> Option<P>,
    write: impl Fn(&P) -> String,
) -> Result<Page<T>, ApiError> {
    let refused = |message: String, hint: &str| ApiError::new(ErrorCode::Refused, message, Some(hint.to_owned()));
    if let Some(limit) = query.limit.filter(|limit| !(1..=PAGE_MAX).contains(limit)) {
        let message = format!("a page has 1 to {PAGE_MAX} things, not {limit}");
        return Err(refused(message, "ask for further pages with 'after'"));
    }
    let unread = |after: &String| {
        let message = format!("no page begins at '{}'", after.escape_debug());
        refused(message, "'after' takes what the header 'azekura-next' of the page before says")
    };
    let after = query.after.as_ref().map(|after| read(after).ok_or_else(|| unread(after))).transpose()?;
    let mut rest = all.skip_while(|thing| after.as_ref().is_some_and(|after| place(thing) <= *after));
    let things: Vec<T> = rest.by_ref().take(query.limit.unwrap_or(usize::MAX)).collect();
    let next = rest.next().and_then(|_| things.last()).map(|last| write(&place(last)));
    Ok(Page { things, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[u32], limit: Option<usize>, after: Option<&str>) -> Result<Page<u32>, ApiError> {
        let query = PageQuery { limit, after: after.map(str::to_owned) };
        page(&query, list.iter().copied(), |number| *number, |text| text.parse().ok(), u32::to_string)
    }

    #[test]
    fn pages_make_up_the_list() {
        let list: Vec<u32> = (0..10).map(|number| number * 2).collect();
        for limit in 1..12 {
            let (mut found, mut after) = (Vec::new(), None::<String>);
            loop {
                let Page { things, next } = of(&list, Some(limit), after.as_deref()).unwrap();
                assert!(!things.is_empty() && things.len() <= limit);
                found.extend(things);
                after = next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, list, "{limit}");
        }
        assert_eq!(of(&list, None, None).unwrap(), Page { things: list.clone(), next: None });
        assert_eq!(of(&list, Some(1), Some("7")).unwrap().things, [8], "the thing there is gone");
        assert_eq!(of(&list, None, Some("99")).unwrap(), Page { things: vec![], next: None });
        assert_eq!(of(&[], Some(5), None).unwrap(), Page { things: vec![], next: None });
    }

    #[test]
    fn what_is_no_page_is_refused() {
        for (limit, after) in [(Some(0), None), (Some(PAGE_MAX + 1), None), (None, Some("x")), (None, Some(""))] {
            assert!(of(&[1], limit, after).is_err(), "{limit:?} {after:?}");
        }
    }
}
