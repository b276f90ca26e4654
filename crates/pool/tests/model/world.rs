//! Random stories on a small world: what is drawn, and what it means where the story has come to.
//!
//! What is drawn refers to jobs by their place and to instants by what lies ahead, so that a story
//! keeps its meaning while it is shrunk.

use crate::draws::{
    guard, holder, id, limits, priority, put_event, put_server, scope, settings, targets,
};
use fermata_pool::command::{Category, Command, EventKind, Executor, Holder, Launch, Override};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;

/// Most entries of a story.
const ENTRIES_MAX: usize = 80;
/// Most jobs of a story.
pub(crate) const JOBS_MAX: usize = 30;

/// Zones of leaders: one sets its clocks by half an hour, one lies half an hour off.
pub(crate) const ZONES: [&str; 4] = [
    "UTC",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
];

/// One drawn entry.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) passes: Passes,
    pub(crate) leader: Leader,
    pub(crate) wishes: Vec<Wish>,
}

/// How much time passes before an entry.
#[derive(Clone, Debug)]
pub(crate) enum Passes {
    Us(i64),
    /// To the next deadline, and so many µs beyond.
    ToDeadline(i64),
    /// To the n-th next end of a window, and so many µs beyond.
    ToEnd(u8, i64),
}

/// Whose entry it is.
#[derive(Clone, Debug)]
pub(crate) enum Leader {
    Same,
    New {
        zone: &'static str,
    },
    /// One whose term is over; it may try to take over again.
    Old {
        takes_over: bool,
    },
}

/// One drawn command.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    Plain(Command),
    Launch(Box<Launch>, Option<(u8, u8)>),
    /// The request of an earlier job again, changed or not.
    LaunchAgain {
        job: u8,
        other: bool,
    },
    Started {
        job: u8,
        attempt: i8,
        from: Sender,
    },
    Completed {
        job: u8,
        attempt: i8,
        code: i32,
        from: Sender,
    },
    Missing {
        job: u8,
        attempt: i8,
        from: Sender,
    },
    StartActionFailed {
        job: u8,
        attempt: i8,
    },
    Cancel(u8),
    CallerSeen(u8),
    LeaseExpired(u8),
    /// An override that ends so many milliseconds from now.
    Override {
        scope: Box<str>,
        sizes: Override,
        ends_ms: Option<i64>,
    },
}

/// Who sends a word about an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender {
    Unnamed,
    Holder,
    Other(u8),
}

fn launch() -> impl Strategy<Value = Wish> {
    let event = weighted(
        0.95,
        prop_oneof![20 => 0_u8..3, 10 => Just(0), 1 => Just(9)],
    );
    let delay_s = weighted(
        0.15,
        select(vec![0_u64, 1, 10, 86_400, 31_622_400, 31_622_401]),
    );
    let own_limits = prop_oneof![4 => Just(Vec::new()), 1 => limits(0.7)];
    let own_targets = weighted(0.2, targets());
    let caller = weighted(0.2, any::<bool>());
    let parent = weighted(0.2, (any::<u8>(), 0_u8..3));
    let workflow = prop::bool::weighted(0.1);
    let lease_s = weighted(0.3, 1_u64..100);
    let parts = (
        event,
        weighted(
            0.3,
            prop_oneof![30 => priority(), 1 => select(vec![-101_i8, 101])],
        ),
        delay_s,
        own_limits,
        own_targets,
        caller,
    );
    (parts, parent, workflow, lease_s).prop_map(
        |((event, priority, delay_s, limits, targets, caller), parent, workflow, lease_s)| {
            let event = event.map(|number| id("e", number));
            let launch = Launch {
                event: if workflow { Some("w".into()) } else { event },
                priority,
                limits,
                targets,
                delay_s,
                executor: caller.filter(|_| !workflow).map(|caller| {
                    if caller {
                        Executor::Caller
                    } else {
                        Executor::Server
                    }
                }),
                lease_s: lease_s.filter(|_| caller == Some(true) && !workflow),
                ..Launch::default()
            };
            Wish::Launch(Box::new(launch), parent)
        },
    )
}

pub(crate) fn sender() -> impl Strategy<Value = Sender> {
    prop_oneof![
        3 => Just(Sender::Unnamed),
        6 => Just(Sender::Holder),
        1 => any::<u8>().prop_map(Sender::Other),
    ]
}

pub(crate) fn attempt() -> impl Strategy<Value = i8> {
    prop_oneof![8 => Just(0_i8), 1 => Just(-1), 1 => Just(1)]
}

fn wish() -> impl Strategy<Value = Wish> {
    let job = any::<u8>;
    let started = (job(), attempt(), sender());
    let completed = (job(), attempt(), select(vec![0, 1, -1]), sender());
    let sizes = (
        weighted(0.6, select(vec![0_u32, 1, 2, 4, 1_000_000])),
        weighted(0.4, select(vec![1_u32, 7, 60, 3_600, 604_800])),
        weighted(0.4, 0_u32..3),
    );
    let ends_ms = weighted(0.4, select(vec![1_i64, 1_000, 10_000, 60_000]));
    let over = (scope(), sizes, ends_ms).prop_map(|(scope, (count, window_s, amount), ends_ms)| {
        Wish::Override {
            sizes: Override {
                count,
                window_s,
                amount: amount.filter(|_| !scope.starts_with("rate:")),
                ..Override::default()
            },
            scope,
            ends_ms,
        }
    });
    let category = (0_u8..2, limits(0.3), guard()).prop_map(|(number, limits, if_revision)| {
        let category = Box::new(Category {
            id: id("c", number),
            title: "".into(),
            limits,
        });
        Command::PutCategory {
            category,
            if_revision,
        }
    });
    let definitions = prop_oneof![
        6 => put_event(),
        2 => (0_u8..3, guard()).prop_map(|(number, if_revision)| Command::DeleteEvent {
            event: id("e", number),
            if_revision,
        }),
        2 => category,
        1 => (0_u8..2, guard()).prop_map(|(number, if_revision)| Command::DeleteCategory {
            category: id("c", number),
            if_revision,
        }),
        1 => (settings(), guard()).prop_map(|(settings, if_revision)| Command::PutSettings {
            settings: Box::new(settings),
            if_revision,
        }),
        4 => put_server(),
        6 => holder().prop_map(Command::ServerSeen),
        1 => holder().prop_map(Command::ServerOffline),
        1 => holder().prop_map(Command::ServerLost),
        1 => (0_u8..3).prop_map(|number| Command::DrainServer { server: id("s", number) }),
        1 => holder().prop_map(Command::ServerDraining),
        1 => (0_u8..3).prop_map(|number| Command::DeleteServer { server: id("s", number) }),
        3 => scope().prop_map(|scope| Command::Reset { scope }),
        1 => Just(Command::ResetAll),
        4 => scope().prop_map(|scope| Command::DeleteOverride { scope }),
        1 => Just(Command::ResetStats),
    ];
    prop_oneof![
        60 => launch(),
        2 => (job(), any::<bool>()).prop_map(|(job, other)| Wish::LaunchAgain { job, other }),
        25 => started.prop_map(|(job, attempt, from)| Wish::Started { job, attempt, from }),
        18 => completed.prop_map(|(job, attempt, code, from)| Wish::Completed { job, attempt, code, from }),
        1 => (job(), attempt(), sender()).prop_map(|(job, attempt, from)| Wish::Missing { job, attempt, from }),
        1 => (job(), attempt()).prop_map(|(job, attempt)| Wish::StartActionFailed { job, attempt }),
        4 => job().prop_map(Wish::Cancel),
        1 => job().prop_map(Wish::CallerSeen),
        1 => job().prop_map(Wish::LeaseExpired),
        5 => over,
        12 => definitions.prop_map(Wish::Plain),
    ]
}

fn passes() -> impl Strategy<Value = Passes> {
    let slip = || select(vec![0_i64, 0, 0, -1, 1, -1_000, 1_000]);
    prop_oneof![
        10 => Just(Passes::Us(0)),
        12 => select(vec![1_i64, 1_000, 400_000, 1_000_000, 5_500_000]).prop_map(Passes::Us),
        1 => select(vec![60_000_000_i64, 3_600_000_000, 86_400_000_000, 700_000_000_000])
            .prop_map(Passes::Us),
        1 => (-5_000_000_i64..0).prop_map(Passes::Us),
        4 => slip().prop_map(Passes::ToDeadline),
        3 => (any::<u8>(), slip()).prop_map(|(nth, slip)| Passes::ToEnd(nth, slip)),
    ]
}

fn turn() -> impl Strategy<Value = Turn> {
    let leader = prop_oneof![
        60 => Just(Leader::Same),
        2 => select(ZONES.to_vec()).prop_map(|zone| Leader::New { zone }),
        1 => any::<bool>().prop_map(|takes_over| Leader::Old { takes_over }),
    ];
    let wishes = prop_oneof![
        1 => prop::collection::vec(wish(), 0..1),
        6 => prop::collection::vec(wish(), 1..2),
        2 => prop::collection::vec(wish(), 1..5),
    ];
    (passes(), leader, wishes).prop_map(|(passes, leader, wishes)| Turn {
        passes,
        leader,
        wishes,
    })
}

/// A server, and that its worker was heard.
pub(crate) fn with_its_worker(server: Command) -> Vec<Command> {
    let Command::PutServer(definition) = &server else {
        return Vec::new();
    };
    let holder = Holder {
        server: Box::from(&*definition.id),
        incarnation: "i0".into(),
    };
    vec![server, Command::ServerSeen(holder)]
}

/// What is there at the beginning.
fn given() -> impl Strategy<Value = Vec<Command>> {
    let events = prop::collection::vec(put_event(), 3..6);
    let servers = prop::collection::vec(put_server(), 1..4);
    let category = limits(0.3).prop_map(|limits| {
        let category = Box::new(Category {
            id: "c0".into(),
            title: "".into(),
            limits,
        });
        Command::PutCategory {
            category,
            if_revision: None,
        }
    });
    let settings = weighted(0.8, settings());
    (events, servers, weighted(0.3, category), settings).prop_map(
        |(mut events, servers, category, settings)| {
            let mut given: Vec<Command> = Vec::new();
            given.extend(settings.map(|settings| Command::PutSettings {
                settings: Box::new(settings),
                if_revision: None,
            }));
            given.extend(category);
            for (number, event) in (0_u8..3).zip(&mut events) {
                if let Command::PutEvent { event, .. } = event
                    && event.kind == EventKind::Event
                {
                    event.id = id("e", number);
                }
            }
            given.extend(events);
            given.extend(servers.into_iter().flat_map(with_its_worker));
            given
        },
    )
}

/// A whole story.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) zone: &'static str,
    pub(crate) begins_us: i64,
    pub(crate) given: Vec<Command>,
    pub(crate) turns: Vec<Turn>,
}

pub(crate) fn story() -> impl Strategy<Value = Story> {
    let zone = select(ZONES.to_vec());
    // An ordinary noon, and shortly before clocks change in each of the two zones with seasons.
    let begins_us = select(vec![
        1_772_452_790_000_000_i64,
        1_772_953_199_000_000,
        1_775_311_000_000_001,
        1_790_000_399_999_000,
    ]);
    let turns = prop::collection::vec(turn(), 1..ENTRIES_MAX);
    (zone, begins_us, given(), turns).prop_map(|(zone, begins_us, given, turns)| Story {
        zone,
        begins_us,
        given,
        turns,
    })
}
