//! `azekura jobs`: what takes long.

use std::process::ExitCode;

use azekura_api::endpoint::JobList;
use azekura_api::{JobProgress, JobView, NoQuery};
use azekura_base::Size;
use clap::Args;
use indicatif::HumanCount;

use super::output::{print, print_json};
use super::table::{Align, Table};
use super::{ApiArgs, CliError};

/// What takes long and goes on by itself, and how far it is: copies that are brought up to date, devices that are
/// emptied or leave, scrubs that somebody has asked for, deleted data that is given back.
///
/// What is over is not in the list. Nothing here has to be begun anew when a node ends: the cluster goes on with it.
/// 'azekura watch jobs' tells of jobs as they begin, go on and end; 'azekura status --wait' waits for copies.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    azekura jobs\n  \
    azekura jobs --json | jq length      how many there are\n  \
    azekura watch jobs                   a line for each step")]
pub struct JobsArgs {
    #[command(flatten)]
    api: ApiArgs,
}

impl JobsArgs {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let jobs = self.api.client()?.ask::<JobList>([], &NoQuery {})?;
        if self.api.json { print_json(&jobs) } else { print(&table(&jobs)) }
    }
}

/// How much of a job is left, or done, as people read it.
pub fn left(JobView { unit, left, total, .. }: &JobView) -> String {
    match total {
        Some(total) => {
            format!("{} of {} {} done", HumanCount(total.saturating_sub(*left)), HumanCount(*total), unit.word())
        }
        None => format!("{} {} left", HumanCount(*left), unit.word()),
    }
}

fn at_work(JobProgress { groups, chunks, chunks_done, bytes }: &JobProgress) -> String {
    let sent = Size::new(*bytes);
    format!("{groups} groups: {} of {} chunks, {sent} sent", HumanCount(*chunks_done), HumanCount(*chunks))
}

fn table(jobs: &[JobView]) -> String {
    if jobs.is_empty() {
        return "Nothing is at work.\n".to_owned();
    }
    let mut table = Table::new(&["JOB", "WHAT", "PROGRESS", "NOW"].map(|title| (title, Align::Left)));
    for job in jobs {
        let now = job.at_work.as_ref().map(at_work).unwrap_or_default();
        table.row(vec![job.id.clone(), job.what.clone(), left(job), now]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::{JobKind, JobUnit};

    #[test]
    fn a_table_tells_how_far_they_are() {
        let job = |id: &str, kind, left, total, at_work| {
            let (id, what) = (id.to_owned(), "device n2/device-0".to_owned());
            JobView { id, kind, what, unit: JobUnit::Groups, left, total, at_work }
        };
        let at_work = JobProgress { groups: 2, chunks: 9_000, chunks_done: 3_120, bytes: 1 << 30 };
        let jobs = [
            job("drain/4", JobKind::Drain, 12, None, None),
            job("scrub/9", JobKind::Scrub, 3, Some(64), None),
            job("resync", JobKind::Resync, 5, None, Some(at_work)),
        ];
        let text = table(&jobs);
        for told in ["12 groups left", "61 of 64 groups done", "2 groups: 3,120 of 9,000 chunks, 1GiB sent"] {
            assert!(text.contains(told), "{told}\n{text}");
        }
        assert_eq!(table(&[]), "Nothing is at work.\n");
    }
}
