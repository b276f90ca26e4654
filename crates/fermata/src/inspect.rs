//! `fermata inspect`: what lies in the folder of a node that does not run, and whether it is whole.

use std::path::PathBuf;

use fermata_replica::ReplicaError;
use fermata_replica::format::log::{LogId, MemberRecord, Vote};
use fermata_replica::store::{Inspection, SnapshotFound, inspect};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::error::CommandError;
use crate::remote::block_on;
use crate::screen::Screen;
use crate::table::{cell, facts};

/// Which folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads everything: each record of the log and each chunk of the snapshots with its checksum, then
the state that they give, with its invariants. The folder is not changed: what is opened is a
copy, which needs as much room as the folder and is removed at the end. A node that is started
meanwhile finds its folder in use.

A tail of the log that a crash cut off is told, and no damage: the node cuts it off when it starts.
With anything else the node would not start, or has lost something: the exit code is 1, and the file
and what to do are named. 2: there is no node in the folder, or it runs.

Entries behind the committed one are counted and not applied: whether they count, a leader says. The
digest is equal on all nodes that have applied the same entries.

Examples:
  fermata inspect /var/lib/fermata
  fermata inspect node-1 --output json | jq .state.digest")]
pub(crate) struct InspectArgs {
    /// The folder with the node's state
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// Where the copy is made, instead of the system's folder for temporary files
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
}

pub(crate) fn run(args: &InspectArgs, screen: Screen) -> Result<(), CommandError> {
    let scratch = scratch(args)?;
    let looking = async {
        let found = inspect(&args.data, scratch.path()).await;
        found.map_err(|error| refused(error, args))
    };
    let found = block_on(looking)?;
    let answer = answer(&found);
    screen.show(&answer, |screen| described(&found, args, screen))?;
    match found.flaw {
        Some(flaw) => Err(CommandError::member(flaw)),
        None => Ok(()),
    }
}

/// A folder for the copy, which goes when it is dropped; never within the one that is looked at.
fn scratch(args: &InspectArgs) -> Result<TempDir, CommandError> {
    let place = args.scratch.clone().unwrap_or_else(std::env::temp_dir);
    if let (Ok(place), Ok(data)) = (place.canonicalize(), args.data.canonicalize())
        && place.starts_with(&data)
    {
        return Err(CommandError::Setting {
            name: "--scratch",
            given: place.display().to_string(),
            allowed: format!("it must not lie within {}", data.display()),
        });
    }
    tempfile::tempdir_in(place).map_err(|source| CommandError::System {
        doing: "make a folder for the copy; --scratch names another place",
        source,
    })
}

fn refused(error: ReplicaError, args: &InspectArgs) -> CommandError {
    match error {
        ReplicaError::NothingThere { .. } => CommandError::Setting {
            name: "DATA",
            given: args.data.display().to_string(),
            allowed: "there is no node in it; allowed: the folder of a node that does not run"
                .to_owned(),
        },
        other => CommandError::member(other),
    }
}

fn answer(found: &Inspection) -> Value {
    let Inspection {
        identity,
        log,
        state,
        ..
    } = found;
    let jobs = &state.jobs;
    json!({
        "identity": {
            "cluster_id": hex(identity.cluster),
            "node": identity.node,
            "store_id": hex(identity.store),
        },
        "vote": found.vote.map(|vote| json!({
            "term": vote.term, "node": vote.node, "committed": vote.committed,
        })),
        "log": {
            "purged": log.purged.map(place),
            "committed": log.committed.map(place),
            "last": log.last.map(place),
            "entries": log.entries,
            "files": log.files,
            "bytes": log.bytes,
            "torn_bytes": log.torn_bytes,
        },
        "snapshots": found.snapshots.iter().map(snapshot).collect::<Vec<_>>(),
        "members": {
            "voters": found.members.voters,
            "nodes": found.members.members.iter().map(member).collect::<Vec<_>>(),
        },
        "state": {
            "applied": state.applied.map(place),
            "digest": digest(state.digest),
            "jobs": {
                "delayed": jobs.delayed,
                "queued": jobs.queued,
                "starting": jobs.starting,
                "active": jobs.active,
                "finished": jobs.finished,
            },
            "pools": state.pools,
            "windows": state.windows,
            "overrides": state.overrides,
            "servers": state.servers,
            "events": state.events,
        },
        "flaw": found.flaw.as_ref().map(ToString::to_string),
    })
}

fn place(id: LogId) -> Value {
    json!({"term": id.term, "index": id.index})
}

fn snapshot(snapshot: &SnapshotFound) -> Value {
    json!({
        "last": snapshot.last.map(place), "rows": snapshot.rows, "bytes": snapshot.bytes,
    })
}

fn member(member: &MemberRecord) -> Value {
    json!({
        "id": member.node, "peer_address": member.peer, "client_url": member.client_url,
    })
}

fn described(found: &Inspection, args: &InspectArgs, screen: Screen) -> String {
    let Inspection {
        identity,
        log,
        state,
        ..
    } = found;
    let jobs = &state.jobs;
    let torn = (log.torn_bytes > 0).then(|| {
        format!(
            "{} bytes of a record that a crash cut off; the node drops them when it starts",
            log.torn_bytes
        )
    });
    let snapshots: Vec<String> = found.snapshots.iter().map(snapshot_in_words).collect();
    let voters: Vec<u64> = found.members.voters.iter().flatten().copied().collect();
    let members = found.members.members.iter().map(|member| {
        let role = if voters.contains(&member.node) {
            "votes"
        } else {
            "learns"
        };
        format!("node {} at {}, {role}", member.node, member.client_url)
    });
    let checks = match &found.flaw {
        None => "every record, every snapshot and the state's invariants hold",
        Some(_) => "the state can be made, but something is damaged",
    };
    facts(
        screen,
        [
            ("folder", Some(cell(args.data.display()))),
            ("node", Some(cell(identity.node))),
            ("cluster", Some(cell(hex(identity.cluster)))),
            ("store", Some(cell(hex(identity.store)))),
            ("vote", Some(cell(vote_in_words(found.vote)))),
            (
                "log",
                Some(cell(format!(
                    "{} entries, up to {}; committed: {}; purged: {}",
                    log.entries,
                    place_in_words(log.last),
                    place_in_words(log.committed),
                    place_in_words(log.purged),
                ))),
            ),
            (
                "log files",
                Some(cell(format!("{} with {} bytes", log.files, log.bytes))),
            ),
            ("torn tail", torn.map(cell)),
            ("snapshots", Some(cell(or_none(&snapshots)))),
            ("members", Some(cell(or_none(&members.collect::<Vec<_>>())))),
            ("applied", Some(cell(place_in_words(state.applied)))),
            ("digest", Some(cell(digest(state.digest)))),
            (
                "jobs",
                Some(cell(format!(
                    "{} delayed, {} queued, {} starting, {} active, {} finished",
                    jobs.delayed, jobs.queued, jobs.starting, jobs.active, jobs.finished
                ))),
            ),
            (
                "state",
                Some(cell(format!(
                    "{} pools, {} windows, {} overrides, {} servers, {} events",
                    state.pools, state.windows, state.overrides, state.servers, state.events
                ))),
            ),
            ("checks", Some(cell(checks))),
        ],
    )
}

fn vote_in_words(vote: Option<Vote>) -> String {
    match vote {
        None => "none".to_owned(),
        Some(vote) => {
            let standing = if vote.committed {
                "which led"
            } else {
                "as a candidate"
            };
            format!("term {}, for node {}, {standing}", vote.term, vote.node)
        }
    }
}

fn place_in_words(place: Option<LogId>) -> String {
    place.map_or_else(
        || "none".to_owned(),
        |id| format!("entry {} of term {}", id.index, id.term),
    )
}

fn snapshot_in_words(snapshot: &SnapshotFound) -> String {
    format!(
        "up to {}, {} rows, {} bytes",
        place_in_words(snapshot.last),
        snapshot.rows,
        snapshot.bytes
    )
}

fn or_none(items: &[String]) -> String {
    match items {
        [] => "none".to_owned(),
        items => items.join("; "),
    }
}

fn hex(id: u128) -> String {
    format!("{id:032x}")
}

/// A number of 64 bits, which JSON's readers round.
fn digest(digest: u64) -> String {
    format!("{digest:016x}")
}
