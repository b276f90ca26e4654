//! Bytes that were written once stay readable for ever.
//!
//! `fixtures/v1/*.hex` hold what version 1 wrote. Files are only ever added: a test that fails
//! here means that a change of the types changed the bytes, and needs a new version.

use super::snapshots::{apply, build, digest, launching};
use super::{entries, entry, id, membership, open, run, wal_file};
use fermata_pool::command::{
    Algo, Category, Claim, Command, Entry, Event, EventKind, Executor, Header, Holder, Launch,
    MemberChange, Node, OnFailure, Override, Parent, ResolveLimits, ServerDefinition, Settings,
    StartAction,
};
use fermata_pool::limits::{
    Align, JobLimit, Limit, LimitKind, Mode, QueueLimit, RateLimit, RetryLimit, Style, TimeLimit,
};
use fermata_pool::time::{Instant, Stamp};
use fermata_replica::format::log::{
    LogId, MemberRecord, MembershipRecord, StoredPayload, Vote, decode_payload, encode_payload,
};
use fermata_replica::format::record::{self, Kind};
use fermata_replica::format::snapshot::{Identity, Manifest};
use fermata_replica::format::{
    ENTRY_BYTES_MAX, FormatError, command_bytes, decode_entry, encode_entry,
};
use fermata_replica::raft::{LogEntry, Proposal, Vote as RaftVote};
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use openraft::storage::{RaftLogReader, RaftStateMachine};
use raft_log::codeq::{Decode, Encode};
use tempfile::TempDir;

fn hex(bytes: &[u8]) -> String {
    let lines: Vec<String> = bytes
        .chunks(32)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    lines.join("\n") + "\n"
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|digit| (digit as char).to_digit(16).expect("a hex digit") as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// The bytes of a fixture; what is written now must be the same.
fn fixture(name: &str, written_now: &[u8]) -> Vec<u8> {
    let path = format!(
        "{}/tests/store/fixtures/v1/{name}.hex",
        env!("CARGO_MANIFEST_DIR")
    );
    let Ok(text) = std::fs::read_to_string(&path) else {
        panic!("{path} is missing; it would be:\n{}", hex(written_now));
    };
    let frozen = unhex(&text);
    assert!(
        frozen == written_now,
        "{name} is written differently now:\n{}",
        hex(written_now)
    );
    frozen
}

fn limits() -> Vec<Limit> {
    let kinds = [
        LimitKind::Job(JobLimit {
            amount: 5,
            rate: 100,
            window: Some(60),
            cap_key: Some("salesforce".into()),
            style: Some(Style::TokenBucket),
            align: Some(Align::Utc),
            burst: Some(7),
            mode: Some(Mode::Wait),
            weight: Some(2),
        }),
        LimitKind::Queue(QueueLimit { amount: 1000 }),
        LimitKind::Rate(RateLimit {
            key: "sendgrid".into(),
            count: 10,
            per_seconds: 60,
            style: Some(Style::Sliding),
            burst: None,
            mode: Some(Mode::Skip),
        }),
        LimitKind::Time(TimeLimit { duration: 3600 }),
        LimitKind::Retry(RetryLimit {
            amount: 3,
            duration: 60,
            backoff: Some(2),
        }),
    ];
    kinds
        .into_iter()
        .map(|kind| Limit {
            enabled: true,
            kind,
        })
        .collect()
}

/// The place of each command among the variants: one that is added fails to compile here, and
/// belongs into [`every_command`].
fn ordinal(command: &Command) -> usize {
    match command {
        Command::Takeover => 0,
        Command::Launch(_) => 1,
        Command::Started { .. } => 2,
        Command::Completed { .. } => 3,
        Command::Cancel { .. } => 4,
        Command::PutEvent { .. } => 5,
        Command::DeleteEvent { .. } => 6,
        Command::PutCategory { .. } => 7,
        Command::DeleteCategory { .. } => 8,
        Command::PutSettings { .. } => 9,
        Command::PutServer(_) => 10,
        Command::DeleteServer { .. } => 11,
        Command::ServerSeen(_) => 12,
        Command::ServerOffline(_) => 13,
        Command::ServerLost(_) => 14,
        Command::AttemptMissing { .. } => 15,
        Command::CallerSeen { .. } => 16,
        Command::LeaseExpired { .. } => 17,
        Command::Reset { .. } => 18,
        Command::ResetAll => 19,
        Command::PutOverride { .. } => 20,
        Command::DeleteOverride { .. } => 21,
        Command::ResetStats => 22,
        Command::By { .. } => 23,
        Command::MembersChanged(_) => 24,
        Command::DrainServer { .. } => 25,
        Command::ServerDraining(_) => 26,
        Command::StartActionFailed { .. } => 27,
        Command::RaiseFormat { .. } => 28,
    }
}

fn holder() -> Holder {
    Holder {
        server: "s1".into(),
        incarnation: "i1".into(),
    }
}

fn every_command() -> Vec<Command> {
    [
        about_jobs(),
        about_definitions(),
        about_holders_and_windows(),
    ]
    .concat()
}

fn about_jobs() -> Vec<Command> {
    vec![
        Command::Takeover,
        Command::Launch(Box::new(Launch {
            id: "j1".into(),
            event: Some("e1".into()),
            priority: Some(-3),
            params: Some(br#"{"a":1}"#[..].into()),
            request_hash: Some(7),
            limits: limits(),
            targets: Some(vec!["s1".into(), "group".into()]),
            delay_s: Some(30),
            parent: Some(Parent {
                job: "w1".into(),
                node: "n1".into(),
            }),
            executor: Some(Executor::Caller),
            lease_s: Some(20),
        })),
        Command::Started {
            job: "j1".into(),
            attempt: 1,
            from: Some(holder()),
        },
        Command::Completed {
            job: "j1".into(),
            attempt: 1,
            code: -1,
            description: "failed".into(),
            from: None,
        },
        Command::Cancel { job: "j1".into() },
    ]
}

fn about_definitions() -> Vec<Command> {
    vec![
        Command::PutEvent {
            event: Box::new(Event {
                id: "e1".into(),
                title: "Événement".into(),
                kind: EventKind::Workflow,
                enabled: true,
                category: Some("c1".into()),
                limits: limits(),
                targets: vec!["s1".into()],
                algo: Algo::Random,
                priority: 100,
                params: None,
                nodes: vec![Node {
                    id: "n1".into(),
                    title: "first".into(),
                    event: Some("e2".into()),
                    limits: limits(),
                }],
                resolve: ResolveLimits::FirstStart,
                on_start: Some(Box::new(StartAction {
                    url: "http://hooks/start".into(),
                    headers: vec![Header {
                        name: "x-team".into(),
                        value: "crm".into(),
                    }],
                    timeout_s: 5,
                    on_failure: OnFailure::Continue,
                })),
            }),
            if_revision: Some(0),
        },
        Command::DeleteEvent {
            event: "e1".into(),
            if_revision: None,
        },
        Command::PutCategory {
            category: Box::new(Category {
                id: "c1".into(),
                title: "first".into(),
                limits: limits(),
            }),
            if_revision: Some(0),
        },
        Command::DeleteCategory {
            category: "c1".into(),
            if_revision: None,
        },
        Command::PutSettings {
            settings: Box::new(Settings {
                universal_event_limits: limits(),
                ..Settings::default()
            }),
            if_revision: Some(0),
        },
        Command::PutServer(ServerDefinition {
            id: "s1".into(),
            groups: vec!["group".into()],
            max_jobs: Some(8),
            enabled: true,
        }),
        Command::DeleteServer {
            server: "s1".into(),
        },
    ]
}

fn about_holders_and_windows() -> Vec<Command> {
    vec![
        Command::ServerSeen(holder()),
        Command::ServerOffline(holder()),
        Command::ServerLost(holder()),
        Command::AttemptMissing {
            job: "j1".into(),
            attempt: 2,
            from: holder(),
        },
        Command::CallerSeen { job: "j1".into() },
        Command::LeaseExpired { job: "j1".into() },
        Command::Reset {
            scope: "cap:salesforce".into(),
        },
        Command::ResetAll,
        Command::PutOverride {
            scope: "rate:sendgrid".into(),
            sizes: Override {
                count: Some(1),
                window_s: Some(60),
                amount: Some(0),
                expires_at: Some(Instant::from_ms(1_790_000_000_000)),
                note: "held".into(),
            },
        },
        Command::DeleteOverride {
            scope: "rate:sendgrid".into(),
        },
        Command::ResetStats,
        Command::By {
            actor: "anonymous@127.0.0.1".into(),
            command: Box::new(Command::ResetAll),
        },
        Command::MembersChanged(MemberChange::HandedOver {
            from: 1,
            to: Some(2),
        }),
        Command::DrainServer {
            server: "s1".into(),
        },
        Command::ServerDraining(holder()),
        Command::StartActionFailed {
            job: "j1".into(),
            attempt: 3,
            description: "no answer".into(),
        },
        Command::RaiseFormat { to: 1 },
    ]
}

#[test]
fn entries_of_version_1() {
    let commands = every_command();
    let ordinals: Vec<usize> = commands.iter().map(ordinal).collect();
    assert_eq!(ordinals, (0..commands.len()).collect::<Vec<_>>());
    let entry = Entry {
        claim: Claim(7),
        stamp: Stamp::utc(Instant::from_ms(1_780_000_000_123)),
        commands,
    };
    let frozen = fixture("entry", &encode_entry(&entry).unwrap());
    assert_eq!(decode_entry(&frozen).unwrap(), entry);
}

#[test]
fn log_ids_votes_and_payloads_of_version_1() {
    let mut written = Vec::new();
    let log_id = LogId {
        term: 3,
        index: 70_000,
    };
    let vote = Vote {
        term: 4,
        committed: true,
        node: 2,
    };
    let payloads = [
        EntryPayload::Blank,
        entry(1, 2).payload,
        membership(1, 3, &[1, 2, 9]).payload,
    ];
    log_id.encode(&mut written).unwrap();
    vote.encode(&mut written).unwrap();
    for payload in &payloads {
        StoredPayload(payload.clone()).encode(&mut written).unwrap();
    }
    let frozen = fixture("log-records", &written);
    let mut frozen = frozen.as_slice();
    assert_eq!(LogId::decode(&mut frozen).unwrap(), log_id);
    assert_eq!(Vote::decode(&mut frozen).unwrap(), vote);
    for payload in payloads {
        assert_eq!(StoredPayload::decode(&mut frozen).unwrap().0, payload);
        let mut body = Vec::new();
        encode_payload(&payload, &mut body).unwrap();
        assert_eq!(decode_payload(&body).unwrap(), payload);
    }
    assert!(frozen.is_empty());
}

#[test]
fn a_log_file_of_version_1() {
    let folder = TempDir::new().unwrap();
    let acknowledged = super::damage::small_log(folder.path());
    let file = wal_file(folder.path());
    let frozen = fixture("log-file", &std::fs::read(&file).unwrap());

    let other = TempDir::new().unwrap();
    drop(open(other.path()));
    std::fs::write(wal_file(other.path()), frozen).unwrap();
    let mut log = open(other.path()).log;
    let last = acknowledged.last().unwrap();
    assert_eq!(entries(&mut log), last.entries);
    assert_eq!(run(log.read_vote()).unwrap(), last.vote);
    assert_eq!(last.vote, Some(RaftVote::new_committed(3, 2)));
    assert_eq!(log.purged(), None);
    assert_eq!(last.entries.last().unwrap().log_id, id(2, 2));
}

fn identity() -> Identity {
    Identity {
        cluster: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
        node: 3,
        store: u128::MAX,
    }
}

fn manifest() -> Manifest {
    Manifest {
        last: Some(LogId {
            term: 5,
            index: 900,
        }),
        membership_at: Some(LogId { term: 1, index: 0 }),
        membership: MembershipRecord {
            voters: vec![vec![1, 2], vec![1, 2, 3]],
            members: vec![MemberRecord {
                node: 1,
                peer: "a:1".to_owned(),
                client_url: "http://a:2".to_owned(),
            }],
        },
        rows: 12,
        bytes: 34_567,
        checksum: 0xdead_beef,
    }
}

#[test]
fn identities_manifests_and_chunks_of_version_1() {
    let frozen = fixture("identity", &identity().to_bytes().unwrap());
    assert_eq!(Identity::from_bytes(&frozen).unwrap(), identity());

    let place = 7_u64.to_be_bytes();
    let frozen = fixture("manifest", &manifest().to_bytes(&place).unwrap());
    assert_eq!(Manifest::from_bytes(&place, &frozen).unwrap(), manifest());

    let frozen = fixture(
        "chunk",
        &record::seal(Kind::Chunk, &place, b"part of a stream"),
    );
    assert_eq!(
        record::open(Kind::Chunk, &place, &frozen).unwrap(),
        (1, &b"part of a stream"[..])
    );
}

#[test]
fn a_snapshot_of_version_1() {
    let folder = TempDir::new().unwrap();
    let mut store = open(folder.path());
    let proposal = |commands| {
        let entry = Entry {
            claim: Claim(1),
            stamp: Stamp::utc(Instant::from_ms(1_780_000_000_123)),
            commands,
        };
        EntryPayload::Normal(Proposal::new(entry).unwrap())
    };
    // Without what removes again what is there.
    let lasting = every_command().into_iter().filter(|command| {
        let removes = matches!(
            command,
            Command::DeleteEvent { .. }
                | Command::DeleteCategory { .. }
                | Command::DeleteServer { .. }
                | Command::DeleteOverride { .. }
                | Command::Cancel { .. }
                | Command::ResetAll
        );
        !removes
    });
    let waiting = launching(1, 3, 10);
    let log = vec![
        LogEntry::new(id(1, 0), proposal(vec![Command::Takeover])),
        waiting,
        LogEntry::new(id(1, 2), proposal(lasting.collect())),
    ];
    apply(&mut store.machine, log);
    let (meta, reader) = build(&mut store.machine);
    let stream = run(reader.read(0, usize::MAX)).unwrap();
    let frozen = fixture("snapshot-stream", &stream);

    let other = TempDir::new().unwrap();
    let mut restored = open(other.path());
    run(async {
        let mut writer = restored.machine.recovery().begin().await.unwrap();
        writer.write(&frozen).await.unwrap();
        let received = writer.finish().await.unwrap();
        restored
            .machine
            .install_snapshot(&meta, received)
            .await
            .unwrap();
    });
    assert_eq!(digest(&restored.machine), digest(&store.machine));
}

#[test]
fn a_record_that_is_not_what_was_written_is_refused() {
    let place = 7_u64.to_be_bytes();
    let bytes = manifest().to_bytes(&place).unwrap();
    let read = |bytes: &[u8]| Manifest::from_bytes(&place, bytes);
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 4;
        assert!(read(&bytes).is_err(), "byte {at}");
        assert!(read(&bytes[..at]).is_err(), "cut to {at}");
    }
    let longer = [bytes.clone(), vec![0]].concat();
    assert!(read(&longer).is_err(), "a byte too many");
    assert!(
        Manifest::from_bytes(&8_u64.to_be_bytes(), &bytes).is_err(),
        "another's place"
    );
    let chunk = record::seal(Kind::Chunk, &place, &bytes[record::HEADER_BYTES..]);
    assert!(read(&chunk).is_err(), "another kind");
    let trailing = [&bytes[record::HEADER_BYTES..], &[0]].concat();
    let trailing = record::seal(Kind::Manifest, &place, &trailing);
    assert!(read(&trailing).is_err(), "something after it");
}

#[test]
fn a_newer_version_is_named() {
    let error = decode_entry(&[2, 0, 0]).unwrap_err();
    assert_eq!(
        error,
        FormatError::Version {
            what: "an entry",
            given: 2,
            most: 1
        }
    );
    assert!(error.to_string().contains("written by a newer one"));
}

#[test]
fn entries_are_bounded_on_both_sides() {
    let of = |bytes: usize| Entry {
        claim: Claim(1),
        stamp: Stamp::default(),
        commands: vec![Command::Cancel {
            job: "x".repeat(bytes).into(),
        }],
    };
    let overhead = encode_entry(&of(0)).unwrap().len();
    let most = ENTRY_BYTES_MAX as usize - overhead;
    let largest = encode_entry(&of(most)).unwrap();
    assert_eq!(largest.len() as u64, ENTRY_BYTES_MAX);
    assert_eq!(decode_entry(&largest).unwrap(), of(most));
    assert_eq!(
        encode_entry(&of(most + 1)).unwrap_err(),
        FormatError::TooLarge {
            what: "an entry",
            given: ENTRY_BYTES_MAX,
            most: ENTRY_BYTES_MAX - 1
        }
    );
    let too_long = [largest, vec![0]].concat();
    assert!(matches!(
        decode_entry(&too_long),
        Err(FormatError::TooLarge { .. })
    ));
    // A length that is not there is not allocated for.
    let mut cut = encode_entry(&of(100)).unwrap();
    let at = cut.len() - 100 - 8;
    cut[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(decode_entry(&cut).is_err());
    // What a leader counts is what an entry takes.
    let with = encode_entry(&of(10)).unwrap().len();
    let without = encode_entry(&Entry {
        commands: Vec::new(),
        ..of(0)
    })
    .unwrap()
    .len();
    assert_eq!((with - without) as u64, command_bytes(&of(10).commands[0]));
}
