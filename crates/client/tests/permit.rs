//! Permits against a node that refuses, forgets, is silent, or says what it should not.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

mod fake;

use std::time::Duration;

use fake::{Asked, DEADLINE, FakeNode, dead_url, soon};
use fermata_api::jobs::JobState;
use fermata_client::permit::CODE_PANICKED;
use fermata_client::{
    Client, ClientOptions, LaunchRequest, Permit, PermitError, PermitOptions, PermitStop,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A lease that no test sees the end of.
const LONG: Duration = Duration::from_secs(3_600);
/// A lease whose end a test waits for.
const SHORT: Duration = Duration::from_secs(3);

type Asking = JoinHandle<Result<Permit, PermitError>>;

/// A node, and a permit that is asked of it.
struct Bench {
    node: FakeNode,
    asking: Asking,
}

impl Bench {
    async fn start(options: PermitOptions) -> Self {
        Self::start_with(options, launch()).await
    }

    async fn start_with(options: PermitOptions, launch: LaunchRequest) -> Self {
        let node = FakeNode::start().await;
        let client = client(&node.url, DEADLINE);
        let asking = tokio::spawn(async move { client.permit_with(launch, options).await });
        Self { node, asking }
    }

    /// The next call that ends so.
    async fn asked(&mut self, end: &str) -> Asked {
        let what = format!("a call of {end}");
        self.node
            .asked_for(&what, |asked| asked.target.ends_with(end))
            .await
    }

    /// Answers the launch with this state, and tells the job's id.
    async fn launched(&mut self, state: &str) -> String {
        let launch = self.asked("/v1/jobs").await;
        let id = launch.body["id"].as_str().expect("an id").to_owned();
        assert_eq!(launch.body["executor"], "caller");
        launch.answer(201, &job(&id, state));
        id
    }

    /// Has the permit granted at once.
    async fn granted(options: PermitOptions) -> (FakeNode, Permit, String) {
        let mut bench = Self::start(options).await;
        let id = bench.launched("starting").await;
        let started = bench.asked("/started").await;
        assert_eq!(started.body, json!({"attempt": 1}));
        started.answer(200, &answer("active", 1, false));
        let Self { node, asking } = bench;
        let permit = got(asking).await.expect("a permit");
        assert_eq!(
            (permit.job().id.as_str(), permit.job().state),
            (id.as_str(), JobState::Active)
        );
        (node, permit, id)
    }

    async fn outcome(self) -> Result<Permit, PermitError> {
        got(self.asking).await
    }
}

/// Waits for something, and answers what is asked meanwhile.
async fn while_answering<T>(
    node: &mut FakeNode,
    happens: impl Future<Output = T>,
    mut answer: impl FnMut(Asked),
) -> T {
    let mut happens = std::pin::pin!(happens);
    loop {
        tokio::select! {
            happened = &mut happens => return happened,
            asked = node.asked() => answer(asked),
        }
    }
}

async fn got(asking: Asking) -> Result<Permit, PermitError> {
    soon("an outcome", asking).await.expect("no panic")
}

fn client(url: &str, deadline: Duration) -> Client {
    let options = ClientOptions {
        deadline,
        ..ClientOptions::default()
    };
    Client::connect_with([url], options).expect("a URL")
}

fn launch() -> LaunchRequest {
    LaunchRequest {
        event: Some("e".to_owned()),
        ..LaunchRequest::default()
    }
}

fn lease(lease: Duration) -> PermitOptions {
    PermitOptions {
        lease,
        ..PermitOptions::default()
    }
}

fn job(id: &str, state: &str) -> Value {
    json!({"id": id, "state": state, "pool": "event:e", "priority": 0, "executor": "caller",
        "attempt": 1, "launched_at": "2026-03-02T12:00:00.000Z", "launch_number": 5})
}

fn aborted(id: &str, reason: &str) -> Value {
    let mut job = job(id, "aborted");
    job["reason"] = reason.into();
    job
}

fn answer(state: &str, attempt: u32, cancel: bool) -> Value {
    json!({"state": state, "attempt": attempt, "lease_s": 30, "cancel": cancel})
}

fn problem(code: &str, status: u16, job: Option<Value>) -> Value {
    let mut problem =
        json!({"type": "urn", "title": "t", "status": status, "detail": "d", "code": code});
    if let Some(job) = job {
        problem["job"] = job;
    }
    problem
}

#[tokio::test]
async fn a_permit_is_confirmed_renewed_and_completed() {
    let (mut node, permit, id) = Bench::granted(lease(SHORT)).await;
    let first_end = permit.lease_ends();
    let beats = format!("/v1/jobs/{id}/heartbeat");
    let mut asked_at = Instant::now();
    let mut lease = permit.lease();
    let renewing = while_answering(&mut node, lease.renewed(), |asked| {
        assert_eq!(
            (&asked.target, &asked.body),
            (&beats, &json!({"attempt": 1}))
        );
        asked_at = Instant::now();
        asked.answer(200, &answer("active", 1, false));
    });
    soon("a renewal", renewing).await;
    assert!(permit.lease_ends() > first_end);
    assert_eq!(lease.ends(), permit.lease_ends());
    assert!(
        permit.lease_ends() <= asked_at + SHORT,
        "it counts from when it was sent"
    );
    assert!(permit.is_held());
    let completing =
        tokio::spawn(async move { permit.complete_with(3, Some("bye".to_owned())).await });
    let end = node
        .asked_for("the end", |asked| asked.target.ends_with("/completed"))
        .await;
    assert_eq!(
        end.body,
        json!({"attempt": 1, "code": 3, "description": "bye"})
    );
    end.answer(200, &job(&id, "complete"));
    let ended = completing.await.expect("no panic").expect("answered");
    assert_eq!(ended.state, JobState::Complete);
}

#[tokio::test]
async fn a_stale_confirmation_waits_for_the_next_start() {
    let mut bench = Bench::start(lease(LONG)).await;
    let id = bench.launched("queued").await;
    let look = bench.asked("wait=start").await;
    assert_eq!(
        look.target,
        format!("/v1/jobs/{id}?timeout_s=10&wait=start")
    );
    look.answer(202, &job(&id, "queued"));
    bench
        .asked("wait=start")
        .await
        .answer(200, &job(&id, "starting"));
    let mut put_back = job(&id, "queued");
    bench
        .asked("/started")
        .await
        .answer(409, &problem("stale_attempt", 409, Some(put_back.clone())));
    put_back["state"] = "starting".into();
    put_back["attempt"] = 2.into();
    bench.asked("wait=start").await.answer(200, &put_back);
    let started = bench.asked("/started").await;
    assert_eq!(started.body, json!({"attempt": 2}));
    started.answer(200, &answer("active", 2, false));
    let permit = bench.outcome().await.expect("a permit");
    assert_eq!(permit.job().attempt, 2);
}

#[tokio::test]
async fn a_dropped_permit_is_released() {
    let (mut node, permit, id) = Bench::granted(lease(LONG)).await;
    drop(permit);
    let end = node.asked().await;
    assert_eq!(end.target, format!("/v1/jobs/{id}/completed"));
    assert_eq!(end.body, json!({"attempt": 1, "code": 0}));

    let (mut node, permit, _) = Bench::granted(lease(LONG)).await;
    let panicking = tokio::spawn(async move {
        let _permit = permit;
        panic!("as it should");
    });
    assert!(panicking.await.is_err());
    let end = node.asked().await;
    assert_eq!(end.body, json!({"attempt": 1, "code": CODE_PANICKED}));
}

/// The slot must not stay with an end that nobody went on to tell.
#[tokio::test]
async fn an_end_that_is_not_waited_for_is_told_all_the_same() {
    let (mut node, permit, _) = Bench::granted(lease(LONG)).await;
    let completing = tokio::spawn(permit.complete(7));
    let first = node.asked().await;
    completing.abort();
    assert!(completing.await.is_err());
    first.hang_up();
    let again = node.asked().await;
    assert_eq!(again.body, json!({"attempt": 1, "code": 7}));
}

#[tokio::test]
async fn who_stops_waiting_has_its_job_withdrawn() {
    let mut bench = Bench::start(lease(LONG)).await;
    let id = bench.launched("queued").await;
    let _look = bench.asked("wait=start").await;
    bench.asking.abort();
    let cancel = bench.asked("/cancel").await;
    assert_eq!(cancel.target, format!("/v1/jobs/{id}/cancel"));

    let options = PermitOptions {
        wait: Some(Duration::from_millis(300)),
        ..lease(LONG)
    };
    let mut bench = Bench::start(options).await;
    let id = bench.launched("queued").await;
    let _look = bench.asked("wait=start").await;
    let cancel = bench.asked("/cancel").await;
    cancel.answer(200, &aborted(&id, "cancelled"));
    let outcome = bench.outcome().await;
    assert!(
        matches!(outcome, Err(PermitError::TimedOut { .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn who_gives_up_is_answered_when_its_job_is_withdrawn() {
    let mut node = FakeNode::start().await;
    let client = client(&node.url, DEADLINE);
    let (give_up, given_up) = tokio::sync::oneshot::channel::<()>();
    let asking = tokio::spawn(async move {
        let given_up = async { given_up.await.expect("the test gives up") };
        client.permit_until(launch(), lease(LONG), given_up).await
    });
    let launched = node.asked().await;
    launched.answer(201, &job("j", "queued"));
    let _look = node.asked().await;
    give_up.send(()).expect("it waits");
    let cancel = node.asked().await;
    assert_eq!(cancel.target.rsplit('/').next(), Some("cancel"));
    assert!(!asking.is_finished());
    cancel.answer(200, &aborted("j", "cancelled"));
    let outcome = got(asking).await;
    assert!(matches!(outcome, Err(PermitError::GivenUp)), "{outcome:?}");
}

/// Else it would keep its slot until its lease is over.
#[tokio::test]
async fn who_gives_up_while_it_is_confirmed_ends_it() {
    let mut bench = Bench::start(lease(LONG)).await;
    let id = bench.launched("starting").await;
    let _confirmation = bench.asked("/started").await;
    bench.asking.abort();
    let cancel = bench.asked("/cancel").await;
    let mut active = job(&id, "active");
    active["cancel"] = true.into();
    cancel.answer(200, &active);
    let end = bench.asked("/completed").await;
    assert_eq!(
        (&end.body["attempt"], &end.body["code"]),
        (&json!(1), &json!(1))
    );
}

/// A program may wait for more permits than it has connections.
#[tokio::test]
async fn a_lease_is_renewed_though_all_connections_are_held() {
    let mut node = FakeNode::start().await;
    let options = ClientOptions {
        connections_max: 1,
        ..ClientOptions::default()
    };
    let client = Client::connect_with([&node.url], options).expect("a URL");
    let _asking = tokio::spawn(async move { client.permit_with(launch(), lease(SHORT)).await });
    node.asked().await.answer(201, &job("j", "queued"));
    let look = node.asked().await;
    assert_eq!(look.method, "GET");
    for _ in 0..2 {
        let beat = node.asked().await;
        assert!(beat.target.ends_with("/heartbeat"), "{}", beat.target);
        beat.answer(200, &answer("queued", 0, false));
    }
}

#[tokio::test]
async fn a_limit_that_says_no_is_not_waited_for() {
    for (code, status) in [("rate_limited", 429), ("queue_full", 429)] {
        let mut bench = Bench::start(lease(LONG)).await;
        let launch = bench.asked("/v1/jobs").await;
        launch.answer(status, &problem(code, status, None));
        let outcome = bench.outcome().await;
        assert!(
            matches!(outcome, Err(PermitError::NotPermitted(_))),
            "{code}: {outcome:?}"
        );
    }
    let mut bench = Bench::start(lease(LONG)).await;
    let launch = bench.asked("/v1/jobs").await;
    launch.answer(409, &problem("id_conflict", 409, None));
    assert!(matches!(
        (&mut bench.asking).await.expect("no panic"),
        Err(PermitError::Refused(_))
    ));
    assert!(bench.node.is_quiet(), "the job of another is not cancelled");
}

#[tokio::test]
async fn who_was_away_for_too_long_waits_anew() {
    let mut bench = Bench::start(lease(LONG)).await;
    let first = bench.launched("queued").await;
    let look = bench.asked("wait=start").await;
    look.answer(200, &aborted(&first, "lease_expired"));
    let second = bench.launched("starting").await;
    assert_ne!(first, second);
    let started = bench.asked("/started").await;
    assert!(started.target.contains(&second));
    started.answer(200, &answer("active", 1, false));
    let permit = bench.outcome().await.expect("a permit");
    assert_eq!(permit.job().id, second);

    // The lease's end may be learnt by the renewal as well.
    let mut bench = Bench::start(lease(SHORT)).await;
    let first = bench.launched("queued").await;
    let _look = bench.asked("wait=start").await;
    let ended = problem("final", 409, Some(aborted(&first, "lease_expired")));
    let again = loop {
        let asked = bench.node.asked().await;
        if asked.target.ends_with("/heartbeat") {
            assert_eq!(asked.body, json!({}));
            asked.answer(409, &ended);
        } else if asked.target == "/v1/jobs" {
            break asked;
        }
    };
    assert_ne!(again.body["id"], *first);
}

#[tokio::test]
async fn a_job_that_was_ended_by_others_gives_no_permit() {
    let own_id = LaunchRequest {
        id: Some("mine".to_owned()),
        ..launch()
    };
    for (launch, reason) in [(launch(), "cancelled"), (own_id, "lease_expired")] {
        let mut bench = Bench::start_with(lease(LONG), launch).await;
        let id = bench.launched("queued").await;
        let look = bench.asked("wait=start").await;
        look.answer(200, &aborted(&id, reason));
        let outcome = bench.outcome().await;
        assert!(
            matches!(outcome, Err(PermitError::Ended(_))),
            "{reason}: {outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_holder_is_told_to_stop_and_then_that_it_lost() {
    let (mut node, mut permit, id) = Bench::granted(lease(SHORT)).await;
    let cancelling = while_answering(&mut node, permit.must_stop(), |beat| {
        beat.answer(200, &answer("active", 1, true));
    });
    let stop = soon("the order", cancelling).await;
    assert_eq!(stop, PermitStop::Cancelled);
    assert!(permit.is_held(), "until it has stopped");
    let ended = problem("final", 409, Some(aborted(&id, "lease_expired")));
    let losing = while_answering(&mut node, permit.must_stop(), |beat| {
        beat.answer(409, &ended);
    });
    let stop = soon("the loss", losing).await;
    assert_eq!(stop, PermitStop::Lost);
    assert!(!permit.is_held());
}

#[tokio::test]
async fn a_lease_that_nobody_renews_is_told_before_it_ends() {
    let (mut node, mut permit, _) = Bench::granted(lease(SHORT)).await;
    let ends = permit.lease_ends();
    let silent = tokio::spawn(async move {
        loop {
            // Taken, and never answered.
            let _beat = node.asked().await;
        }
    });
    let stop = soon("the warning", permit.must_stop()).await;
    assert_eq!(stop, PermitStop::Lapsing);
    assert_eq!(permit.lease_ends(), ends);
    let stop = soon("the loss", permit.must_stop()).await;
    assert_eq!(stop, PermitStop::Lost);
    assert!(Instant::now() >= ends);
    silent.abort();
}

#[tokio::test]
async fn a_retry_that_nobody_would_execute_is_cancelled() {
    let (mut node, permit, id) = Bench::granted(lease(LONG)).await;
    let completing = tokio::spawn(permit.complete(1));
    node.asked().await.answer(200, &job(&id, "delayed"));
    let cancel = node.asked().await;
    assert_eq!(cancel.target, format!("/v1/jobs/{id}/cancel"));
    cancel.answer(200, &aborted(&id, "cancelled"));
    let ended = completing.await.expect("no panic").expect("answered");
    assert_eq!(ended.state, JobState::Aborted);
}

#[tokio::test]
async fn an_unreachable_cluster_is_given_up_or_waited_for() {
    let short = Duration::from_millis(100);
    let impatient = PermitOptions {
        gives_up_unreachable: true,
        ..lease(LONG)
    };
    let in_time = PermitOptions {
        wait: Some(Duration::from_millis(250)),
        ..lease(LONG)
    };
    for options in [impatient, in_time] {
        let client = client(&dead_url().await, short);
        let asking = client.permit_with(launch(), options);
        let outcome = soon("an outcome", asking).await;
        assert!(
            matches!(outcome, Err(PermitError::Unreachable { .. })),
            "{outcome:?}"
        );
    }
    // One that comes back is asked with the same id.
    let mut node = FakeNode::start().await;
    let client = client(&node.url, short);
    let asking = tokio::spawn(async move { client.permit(launch()).await });
    let first = node.asked().await;
    let id = first.body["id"].as_str().expect("an id").to_owned();
    let begun = Instant::now();
    first.hang_up();
    while begun.elapsed() < 4 * short {
        node.asked().await.hang_up();
    }
    let launch = node.asked().await;
    assert_eq!(launch.body["id"], *id);
    launch.answer(201, &job(&id, "starting"));
    let started = node
        .asked_for("a confirmation", |asked| asked.target.ends_with("/started"))
        .await;
    started.answer(200, &answer("active", 1, false));
    assert_eq!(got(asking).await.expect("a permit").job().id, id);
}
