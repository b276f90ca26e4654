//! Who changed what: one record for each command of an operator that was done, bounded, and part
//! of the state.

#![expect(
    clippy::expect_used,
    reason = "the commands and rows that the tests use are their own"
)]

use fermata_pool::Pool;
use fermata_pool::audit::{ACTOR_BYTES_MAX, AUDIT_RECORDS_MAX, Action, AuditRecord};
use fermata_pool::command::{
    Category, Claim, Command, Entry, Event, Launch, MemberChange, Override, ServerDefinition,
    Settings,
};
use fermata_pool::outcome::Outcome;
use fermata_pool::snapshot::{Restore, Row};
use fermata_pool::time::{Instant, Stamp};

/// Applies commands, each in an entry of its own.
struct Log {
    pool: Pool,
    index: u64,
}

impl Log {
    fn new() -> Self {
        let mut log = Self {
            pool: Pool::new(),
            index: 0,
        };
        log.tell(Command::Takeover);
        log
    }

    fn tell(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let entry = Entry {
            claim: Claim(1),
            stamp: Stamp::utc(Instant::from_ms(1_780_000_000_000 + self.index as i64)),
            commands: vec![command],
        };
        let outcomes = self.pool.apply(self.index, &entry).outcomes;
        outcomes.expect("the claim in force").remove(0)
    }

    fn by(&mut self, actor: &str, command: Command) -> Outcome {
        self.tell(Command::By {
            actor: actor.into(),
            command: Box::new(command),
        })
    }

    fn newest(&self) -> AuditRecord {
        let record = self.pool.audit(None).next();
        record.expect("there is one").1.clone()
    }
}

fn put_event(title: &str, enabled: bool) -> Command {
    Command::PutEvent {
        event: Box::new(Event {
            id: "e".into(),
            title: title.into(),
            enabled,
            ..Event::default()
        }),
        if_revision: None,
    }
}

fn put_server(max_jobs: u32) -> Command {
    Command::PutServer(ServerDefinition {
        id: "s".into(),
        groups: Vec::new(),
        max_jobs: Some(max_jobs),
        enabled: true,
    })
}

fn scope() -> Box<str> {
    "cap:k".into()
}

/// A command of an operator: what it is, to what, its revision, and what is said about it.
type Change = (Command, Action, &'static str, Option<u64>, &'static str);

fn every_change() -> Vec<Change> {
    [of_definitions(), of_servers_and_windows(), of_members()].concat()
}

fn of_definitions() -> Vec<Change> {
    let category = Category {
        id: "c".into(),
        ..Category::default()
    };
    let settings = Settings {
        lease_s: 31,
        ..Settings::default()
    };
    vec![
        (put_event("a", true), Action::PutEvent, "e", Some(1), "new"),
        (
            put_event("b", false),
            Action::PutEvent,
            "e",
            Some(2),
            "changed: title, enabled",
        ),
        (
            put_event("b", false),
            Action::PutEvent,
            "e",
            Some(3),
            "nothing changed",
        ),
        (
            Command::DeleteEvent {
                event: "e".into(),
                if_revision: None,
            },
            Action::DeleteEvent,
            "e",
            None,
            "",
        ),
        (
            Command::PutCategory {
                category: Box::new(category),
                if_revision: None,
            },
            Action::PutCategory,
            "c",
            Some(1),
            "new",
        ),
        (
            Command::DeleteCategory {
                category: "c".into(),
                if_revision: None,
            },
            Action::DeleteCategory,
            "c",
            None,
            "",
        ),
        (
            Command::PutSettings {
                settings: Box::new(settings),
                if_revision: None,
            },
            Action::PutSettings,
            "",
            Some(1),
            "changed: lease_s from 30 to 31",
        ),
    ]
}

fn of_servers_and_windows() -> Vec<Change> {
    let sizes = Override {
        amount: Some(0),
        note: "vendor is down".into(),
        ..Override::default()
    };
    vec![
        (put_server(1), Action::PutServer, "s", Some(1), "new"),
        (
            put_server(2),
            Action::PutServer,
            "s",
            Some(2),
            "changed: max_jobs",
        ),
        (
            Command::DeleteServer { server: "s".into() },
            Action::DeleteServer,
            "s",
            None,
            "",
        ),
        (
            Command::PutOverride {
                scope: scope(),
                sizes,
            },
            Action::PutOverride,
            "cap:k",
            None,
            "amount 0, note \"vendor is down\"",
        ),
        (
            Command::DeleteOverride { scope: scope() },
            Action::DeleteOverride,
            "cap:k",
            None,
            "was: amount 0, note \"vendor is down\"",
        ),
        (
            Command::Reset { scope: scope() },
            Action::Reset,
            "cap:k",
            None,
            "",
        ),
        (Command::ResetAll, Action::ResetAll, "", None, ""),
        (Command::ResetStats, Action::ResetStats, "", None, ""),
    ]
}

fn of_members() -> Vec<Change> {
    vec![
        (
            Command::MembersChanged(MemberChange::Added {
                node: 2,
                peer: "b:1".into(),
            }),
            Action::AddMember,
            "2",
            None,
            "reached by its peers at b:1",
        ),
        (
            Command::MembersChanged(MemberChange::Removed { node: 2 }),
            Action::RemoveMember,
            "2",
            None,
            "",
        ),
        (
            Command::MembersChanged(MemberChange::HandedOver {
                from: 1,
                to: Some(3),
            }),
            Action::Transfer,
            "3",
            None,
            "node 1 led",
        ),
    ]
}

#[test]
fn every_change_by_an_operator_leaves_one_record() {
    let mut log = Log::new();
    for (number, (command, action, target, revision, change)) in (1..).zip(every_change()) {
        let outcome = log.by("mary@192.0.2.7", command);
        assert!(
            !matches!(outcome, Outcome::Refused(_)),
            "{action:?}: {outcome:?}"
        );
        assert_eq!(log.pool.audit(None).count(), number, "{action:?}");
        let record = log.newest();
        let expected = AuditRecord {
            at: log.pool.stamp().at,
            index: log.index,
            actor: "mary@192.0.2.7".into(),
            action,
            target: target.into(),
            revision,
            change: change.into(),
        };
        assert_eq!(record, expected);
    }
}

#[test]
fn what_changes_nothing_leaves_none() {
    let mut log = Log::new();
    log.tell(put_server(1));
    assert_eq!(log.newest().actor, "".into(), "nobody said who");
    log.by("worker", put_server(1));
    log.by(
        "mary",
        Command::DeleteEvent {
            event: "nobody".into(),
            if_revision: None,
        },
    );
    log.by(
        "mary",
        Command::Launch(Box::new(Launch {
            id: "j".into(),
            ..Launch::default()
        })),
    );
    let nested = Command::By {
        actor: "mary".into(),
        command: Box::new(Command::ResetAll),
    };
    assert!(matches!(log.by("john", nested), Outcome::Refused(_)));
    assert_eq!(log.pool.audit(None).count(), 1);
    log.by(&"é".repeat(ACTOR_BYTES_MAX), Command::ResetAll);
    assert_eq!(log.newest().actor, "é".repeat(ACTOR_BYTES_MAX / 2).into());
}

#[test]
fn the_oldest_records_go() {
    let mut log = Log::new();
    for _ in 0..AUDIT_RECORDS_MAX + 3 {
        log.tell(Command::ResetStats);
    }
    assert_eq!(log.pool.audit(None).count(), AUDIT_RECORDS_MAX);
    let most = AUDIT_RECORDS_MAX as u64;
    let page: Vec<u64> = log.pool.audit(Some(7)).map(|(number, _)| number).collect();
    assert_eq!(page, [6, 5, 4], "newest first, from there on");
    let newest = log.pool.audit(None).next().map(|(number, _)| number);
    assert_eq!(newest, Some(most + 3));
}

#[test]
fn a_snapshot_has_the_records_as_they_were() {
    let mut log = Log::new();
    for (command, ..) in every_change() {
        log.by("mary", command);
    }
    let before: Vec<AuditRecord> = log.pool.audit(None).map(|(_, it)| it.clone()).collect();
    log.pool.begin_walk().expect("no other walk");
    log.by("john", Command::ResetAll);
    let mut restore = Restore::default();
    let mut rows = 0;
    while log.pool.walk(1, &mut |row: &Row<'_>| {
        restore.push(row.clone()).expect("rows in order");
        rows += 1;
    }) {}
    assert!(rows > before.len());
    let restored = restore.finish().expect("the digest is right");
    let after: Vec<AuditRecord> = restored.audit(None).map(|(_, it)| it.clone()).collect();
    assert_eq!(before, after);
}
