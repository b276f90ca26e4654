use super::*;
use fermata_pool::command::ServerDefinition;
use std::slice::from_ref;

const SECOND: i64 = 1_000_000;
const TIMEOUTS: Timeouts = Timeouts {
    server_us: 30 * SECOND,
    job_us: 120 * SECOND,
};

fn holder(incarnation: &str) -> Holder {
    Holder {
        server: "s1".into(),
        incarnation: incarnation.into(),
    }
}

fn server(online: bool, jobs: u32, heard_s: i64) -> Server {
    Server {
        definition: ServerDefinition {
            id: "s1".into(),
            ..ServerDefinition::default()
        },
        revision: 1,
        incarnation: Some("a".into()),
        online,
        draining: false,
        superseded: Vec::new(),
        seen_under: 1,
        heard_at: Instant::from_us(heard_s * SECOND),
        jobs,
        used: jobs,
    }
}

fn due(leases: &mut Leases, at_s: i64) -> Vec<Due> {
    leases.due(at_s * SECOND, TIMEOUTS)
}

fn next_s(leases: &Leases) -> Option<i64> {
    leases.next_due_us(TIMEOUTS).map(|us| us / SECOND)
}

#[test]
fn the_first_renewal_is_committed_and_the_next_are_noted() {
    let mut leases = Leases::default();
    let a = holder("a");
    assert_eq!(leases.hear_server(&a, 0, false), Renewal::Commit);
    leases.server_seen(&a, 0);
    assert_eq!(leases.hear_server(&a, 10 * SECOND, true), Renewal::Noted);
    assert_eq!(next_s(&leases), Some(40));
    assert_eq!(
        leases.hear_server(&a, 5 * SECOND, true),
        Renewal::Noted,
        "one that arrived earlier and was confirmed later"
    );
    assert_eq!(next_s(&leases), Some(40), "never takes anything back");
    assert_eq!(
        leases.hear_server(&a, 11 * SECOND, false),
        Renewal::Commit,
        "the pool has another opinion"
    );
    assert_eq!(
        leases.hear_server(&holder("b"), 12 * SECOND, false),
        Renewal::Commit,
        "a new incarnation"
    );
}

#[test]
fn silence_makes_a_server_offline_and_then_lost() {
    let mut leases = Leases::default();
    let a = holder("a");
    leases.server_seen(&a, 0);
    assert_eq!(due(&mut leases, 29), []);
    let offline = Due::Offline(a.clone());
    assert_eq!(due(&mut leases, 30), from_ref(&offline));
    assert_eq!(due(&mut leases, 31), [], "given out once");
    leases.ended(&offline, End::NotMade);
    assert_eq!(
        due(&mut leases, 31),
        from_ref(&offline),
        "and again if it failed"
    );
    leases.ended(&offline, End::Committed);
    assert_eq!(next_s(&leases), Some(150));
    assert_eq!(due(&mut leases, 149), []);
    let lost = Due::Lost(a);
    assert_eq!(due(&mut leases, 150), from_ref(&lost));
    leases.ended(&lost, End::Committed);
    assert_eq!(next_s(&leases), None);
}

#[test]
fn what_the_pool_refuses_to_end_is_forgotten() {
    let mut leases = Leases::default();
    leases.server_seen(&holder("a"), 0);
    for given in due(&mut leases, 30) {
        leases.ended(&given, End::Refused);
    }
    leases.caller_seen("j", 30, 0);
    for given in due(&mut leases, 30) {
        leases.ended(&given, End::Refused);
    }
    assert_eq!(next_s(&leases), None);
}

#[test]
fn a_renewal_behind_an_end_that_is_on_its_way_is_committed() {
    let mut leases = Leases::default();
    let a = holder("a");
    leases.server_seen(&a, 0);
    let offline = Due::Offline(a.clone());
    assert_eq!(due(&mut leases, 30), from_ref(&offline));
    assert_eq!(leases.hear_server(&a, 30 * SECOND, true), Renewal::Commit);
    leases.server_seen(&a, 30 * SECOND);
    leases.ended(&offline, End::Committed);
    assert_eq!(
        next_s(&leases),
        Some(60),
        "the renewal came last and stands"
    );
    assert_eq!(leases.hear_server(&a, 31 * SECOND, true), Renewal::Noted);
}

#[test]
fn a_renewal_that_is_being_committed_is_not_overtaken_by_an_older_end() {
    let mut leases = Leases::default();
    leases.take_server(
        &server(false, 1, 0),
        Instant::from_us(100 * SECOND),
        100 * SECOND,
    );
    assert_eq!(next_s(&leases), Some(150));
    assert_eq!(
        leases.hear_server(&holder("a"), 149 * SECOND, false),
        Renewal::Commit
    );
    assert_eq!(due(&mut leases, 151), []);
    leases.server_seen(&holder("a"), 149 * SECOND);
    assert_eq!(next_s(&leases), Some(179));
}

#[test]
fn a_new_leader_counts_on_from_where_the_pool_says() {
    let at = Instant::from_us(1_000 * SECOND);
    let taken = |server: &Server| {
        let mut leases = Leases::default();
        leases.take_server(server, at, 7 * SECOND);
        leases
    };
    let mut renewed = taken(&server(true, 1, 1_000));
    assert_eq!(next_s(&renewed), Some(37), "a full lease anew");
    assert_eq!(
        renewed.hear_server(&holder("a"), 8 * SECOND, true),
        Renewal::Commit,
        "not heard under this claim yet"
    );
    assert_eq!(next_s(&taken(&server(true, 1, 980))), Some(17));
    assert_eq!(next_s(&taken(&server(false, 1, 980))), Some(137));
    assert_eq!(
        next_s(&taken(&server(false, 0, 980))),
        None,
        "offline with nothing to lose"
    );
    let mut overdue = taken(&server(true, 1, 0));
    let offline = Due::Offline(holder("a"));
    assert_eq!(due(&mut overdue, 7), from_ref(&offline));
    overdue.ended(&offline, End::Committed);
    assert_eq!(due(&mut overdue, 7), [Due::Lost(holder("a"))]);
}

#[test]
fn a_callers_lease_has_its_own_length() {
    let mut leases = Leases::default();
    assert_eq!(leases.hear_caller("j", 0), Renewal::Commit);
    leases.caller_seen("j", 10, 0);
    leases.caller_seen("k", 60, 0);
    assert_eq!(leases.hear_caller("j", 5 * SECOND), Renewal::Noted);
    assert_eq!(next_s(&leases), Some(15));
    let expired = Due::Expired("j".into());
    assert_eq!(due(&mut leases, 15), from_ref(&expired));
    assert_eq!(leases.hear_caller("j", 15 * SECOND), Renewal::Commit);
    leases.ended(&expired, End::NotMade);
    assert_eq!(due(&mut leases, 16), from_ref(&expired));
    leases.ended(&expired, End::Committed);
    assert_eq!(next_s(&leases), Some(60));
}

#[test]
fn a_new_leader_has_each_caller_commit_once() {
    let mut leases = Leases::default();
    let lease = LeaseView {
        job: "j",
        lease_s: 30,
        heard_at: Instant::from_us(90 * SECOND),
        seen: false,
    };
    leases.take_caller(&lease, Instant::from_us(100 * SECOND), 0);
    assert_eq!(next_s(&leases), Some(20));
    assert_eq!(leases.hear_caller("j", SECOND), Renewal::Commit);
    assert_eq!(next_s(&leases), Some(31));
    leases.caller_seen("j", 30, SECOND);
    assert_eq!(leases.hear_caller("j", 2 * SECOND), Renewal::Noted);
}

#[test]
fn gives_out_a_bounded_number_in_one_go() {
    let mut leases = Leases::default();
    for number in 0..=DUE_MAX {
        leases.caller_seen(&format!("j{number}"), 30, 0);
    }
    assert_eq!(due(&mut leases, 30).len(), DUE_MAX);
    assert_eq!(due(&mut leases, 30).len(), 1);
}
