//! The control plane over HTTP, with its configuration server in the same process.
//!
//! One program, since each is linked for itself, with all that it uses.
#![allow(clippy::unwrap_used)]

mod api;
mod audit;
mod authorities;
mod grants;
mod idempotency;
mod projects;
mod support;
mod unread;
mod web_pages;
