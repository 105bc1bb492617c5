//! The code names the decisions that it follows by their numbers: each must be a page of docs/decisions, and have the
//! point.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Pages whose rules each crate enforces: its code must name them there.
const ENFORCED: [(&str, &[&str]); 14] = [
    ("replica", &["0004", "0007", "0008", "0009", "0010", "0013", "0014", "0018", "0019", "0021", "0022", "0024"]),
    ("protocol-model", &["0010", "0013"]),
    ("store", &["0004", "0014", "0015", "0016", "0035"]),
    ("gateway", &["0018"]),
    ("frontend", &["0009", "0017", "0018"]),
    ("node", &["0008", "0009", "0011", "0012", "0014", "0015", "0017", "0018", "0019", "0021", "0024"]),
    ("base", &["0024"]),
    ("wire", &["0024"]),
    ("reactor", &["0024"]),
    ("map-db", &["0015", "0035"]),
    ("server", &["0019", "0035"]),
    ("model", &["0019"]),
    ("meta", &["0019"]),
    ("plans", &["0019"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages, by number.
fn pages() -> BTreeMap<String, String> {
    let pages = fs::read_dir(root().join("docs/decisions")).unwrap().map(|entry| entry.unwrap().path());
    pages
        .map(|page| (page.file_name().unwrap().to_str().unwrap()[..4].to_owned(), fs::read_to_string(page).unwrap()))
        .collect()
}

/// The files below `folder` whose names end in `.rs`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(sources(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
    found
}

/// The decisions that `comment` names, each with the number of the point that is named with it.
fn named(comment: &str) -> Vec<(String, Option<u32>)> {
    let mut found = Vec::new();
    for (at, _) in comment.match_indices("00") {
        let before = comment[..at].chars().next_back();
        let number: String = comment[at..].chars().take_while(char::is_ascii_digit).collect();
        if number.len() != 4 || before.is_some_and(|c| c.is_alphanumeric() || ",._".contains(c)) {
            continue;
        }
        let rest = &comment[at + 4..];
        let point = [", point ", ", points ", " (point "].iter().find_map(|word| rest.strip_prefix(word));
        let point = point.unwrap_or_default();
        let point: String = point.chars().take_while(char::is_ascii_digit).collect();
        found.push((number, point.parse().ok()));
    }
    found
}

#[test]
fn every_decision_that_the_code_names_is_there() {
    let pages = pages();
    for (name, enforced) in ENFORCED {
        let mut seen = BTreeSet::new();
        for file in sources(&root().join("crates").join(name).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            // A sentence may go on in the next line.
            let comments = text.lines().filter_map(|line| line.split_once("//").map(|(_, comment)| comment));
            let comments: Vec<&str> = comments.map(|comment| comment.trim_start_matches(['/', '!', ' '])).collect();
            for (number, point) in named(&comments.join(" ")) {
                let page =
                    pages.get(&number).unwrap_or_else(|| panic!("{file:?} names {number}, which is no decision"));
                if let Some(point) = point {
                    let has = page.lines().any(|line| line.starts_with(&format!("{point}. ")));
                    assert!(has, "{file:?} names point {point} of {number}, which has none");
                }
                seen.insert(number);
            }
        }
        for page in enforced {
            assert!(seen.contains(*page), "no line of crates/{name} says that it follows decision {page}");
        }
    }
}

#[test]
fn numbers_are_found_in_comments() {
    let number = |number: &str, point| (number.to_owned(), point);
    assert_eq!(named(" 0010, point 5: one change"), [number("0010", Some(5))]);
    assert_eq!(
        named(" see (0007) and docs/decisions/0013-claim-first.md"),
        [number("0007", None), number("0013", None)]
    );
    assert_eq!(named(" 10,000 groups, 1.0004 s, 00123, 0x0010"), []);
}
