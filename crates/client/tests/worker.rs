//! The worker's loop against a node that says what it should not, late, twice, or not at all.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

mod fake;

use std::future::pending;
use std::time::Duration;

use fake::{Asked, DEADLINE, FakeNode, soon};
use fermata_client::worker::{
    CODE_KILLED, Departure, Ending, Order, Run, Stop, WorkerError, WorkerOptions,
};
use fermata_client::{Client, ClientOptions};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const LONG_MS: u64 = 600_000;
const POLL: &str = "/v1/servers/s1/poll";

/// Most executions that wait for the test to look at them.
const RUNS_MAX: usize = 1_024;

/// A worker whose executors are played by the test.
struct Bench {
    node: FakeNode,
    runs: mpsc::Receiver<Executing>,
    orders: watch::Sender<Order>,
    worker: JoinHandle<Result<Departure, WorkerError>>,
}

/// An execution: the test ends it by sending its ending; dropped with the sender, it hangs.
struct Executing {
    run: Run,
    end: oneshot::Sender<Ending>,
}

impl Bench {
    async fn start() -> Self {
        Self::start_with(None).await
    }

    async fn start_with(drain_timeout: Option<Duration>) -> Self {
        let node = FakeNode::start().await;
        let options = ClientOptions {
            answer_timeout: DEADLINE,
            ..ClientOptions::default()
        };
        let client = Client::connect_with([&node.url], options).expect("a URL");
        let (sender, runs) = mpsc::channel(RUNS_MAX);
        let execute = move |run| executor(run, sender.clone());
        let (orders, given) = watch::channel(Order::Work);
        let options = WorkerOptions {
            incarnation: 7,
            drain_timeout,
            ..WorkerOptions::new("s1")
        };
        let worker = async move { client.worker_by_orders(options, execute, given).await };
        Self {
            node,
            runs,
            orders,
            worker: tokio::spawn(worker),
        }
    }

    /// The last word of the worker.
    async fn leave(&mut self) {
        let leave = self.node.asked_for("a leave", |asked| asked.target != POLL);
        let leave = leave.await;
        assert_eq!(leave.target, "/v1/servers/s1/leave");
        assert_eq!(leave.body, json!({"incarnation": 7}));
        leave.answer(
            200,
            &json!({"id": "s1", "groups": [], "enabled": true, "online": false,
            "starting": 0, "active": 0, "weight": 0}),
        );
    }

    /// Answers the poll that says at once that nothing new is taken.
    async fn told(&mut self) {
        let tells = |asked: &Asked| {
            asked.target == POLL && asked.body["draining"] == true && asked.body["wait_ms"] == 0
        };
        let poll = self.node.asked_for("a word that it drains", tells).await;
        assert_eq!(poll.body["started"], json!([]));
        poll.answer(200, &answer(&json!({})));
    }

    /// The next poll that carries confirmations or ends.
    async fn report(&mut self) -> Asked {
        self.node.asked_for("a report", is_report).await
    }

    /// The next poll that may be held.
    async fn held(&mut self) -> Asked {
        self.node
            .asked_for("a poll", |asked| asked.target == POLL && !is_report(asked))
            .await
    }

    async fn running(&mut self) -> Executing {
        soon("an execution", self.runs.recv())
            .await
            .expect("the worker runs")
    }

    /// Answers polls, with these fields, until the worker has nothing in hand.
    async fn until_empty_handed(&mut self, fields: &Value) {
        let answering = async {
            loop {
                let held = self.held().await;
                let is_empty = held.body["holds"] == json!([]);
                held.answer(200, &answer(fields));
                if is_empty {
                    return;
                }
            }
        };
        soon("nothing in hand", answering).await;
    }

    fn nothing_runs(&mut self) -> bool {
        self.runs.try_recv().is_err()
    }

    /// Offers a job and confirms it.
    async fn run_one(&mut self, job: &str) -> Executing {
        self.held()
            .await
            .answer(200, &answer(&json!({"launches": [offer(job, 1)]})));
        let report = self.report().await;
        assert_eq!(report.body["started"], json!([attempt(job, 1)]));
        report.answer(
            200,
            &answer(&json!({"started": [accepted(job, 1, "active")]})),
        );
        self.running().await
    }

    async fn finished(self) -> Result<Departure, WorkerError> {
        soon("the worker ends", self.worker)
            .await
            .expect("no panic")
    }
}

async fn executor(run: Run, sender: mpsc::Sender<Executing>) -> Ending {
    let (end, ended) = oneshot::channel();
    sender
        .send(Executing { run, end })
        .await
        .expect("the test listens");
    match ended.await {
        Ok(ending) => ending,
        Err(_) => pending().await,
    }
}

fn is_report(asked: &Asked) -> bool {
    assert_eq!(asked.body["incarnation"], 7);
    let has = |list: &str| {
        asked.body[list]
            .as_array()
            .is_some_and(|list| !list.is_empty())
    };
    asked.target == POLL && (has("started") || has("completed"))
}

fn attempt(job: &str, attempt: u32) -> Value {
    json!({"job": job, "attempt": attempt})
}

fn accepted(job: &str, attempt: u32, state: &str) -> Value {
    json!({"job": job, "attempt": attempt, "state": state})
}

fn refused(job: &str, attempt: u32, error: &str) -> Value {
    json!({"job": job, "attempt": attempt, "state": "queued", "error": error})
}

fn offer(job: &str, attempt: u32) -> Value {
    json!({"job": job, "attempt": attempt, "start_at": "2026-03-02T12:00:00.001Z",
        "start_at_us": 1_772_452_800_000_001_i64, "start_index": {"index": 9, "ordinal": 0},
        "event": "e", "pool": "event:e", "priority": 0, "params": {"n": 1}})
}

/// A poll's answer with a long lease and these fields.
fn answer(fields: &Value) -> Value {
    answer_with_lease(LONG_MS, LONG_MS, fields)
}

fn answer_with_lease(lease_ms: u64, server_timeout_ms: u64, fields: &Value) -> Value {
    let mut answer = json!({"lease_ms": lease_ms, "server_timeout_ms": server_timeout_ms});
    for (name, value) in fields.as_object().into_iter().flatten() {
        answer[name] = value.clone();
    }
    answer
}

fn exit(code: i32) -> Ending {
    Ending {
        code,
        description: None,
    }
}

#[tokio::test]
async fn an_attempt_runs_once_after_its_confirmation_and_is_reported_until_acknowledged() {
    let mut bench = Bench::start().await;
    let launches = json!({"launches": [offer("j", 1)]});
    bench.held().await.answer(200, &answer(&launches));
    let report = bench.report().await;
    assert_eq!(report.body["started"], json!([attempt("j", 1)]));
    assert_eq!(report.body["holds"], json!([attempt("j", 1)]));
    assert_eq!(report.body["wait_ms"], 0);
    // Offered again before it is confirmed: nothing comes of it.
    bench.held().await.answer(200, &answer(&launches));
    let held = bench.held().await;
    assert_eq!(held.body["holds"], json!([attempt("j", 1)]));
    assert_eq!(held.body["wait_ms"], 30_000, "the longest hold");
    assert!(bench.nothing_runs(), "not before the confirmation");
    report.answer(
        200,
        &answer(&json!({"started": [accepted("j", 1, "active")]})),
    );
    let executing = bench.running().await;
    assert_eq!(executing.run.offer.start_at_us, 1_772_452_800_000_001);
    assert_eq!(executing.run.incarnation, 7);
    let params = executing.run.offer.params.as_ref().expect("given");
    assert_eq!(params.as_json(), r#"{"n":1}"#);

    held.answer(200, &answer(&launches));
    executing.end.send(exit(3)).expect("it runs");
    let report = bench.report().await;
    assert_eq!(
        report.body["completed"],
        json!([{"job": "j", "attempt": 1, "code": 3}])
    );
    assert_eq!(report.body["started"], json!([]));
    // Not acknowledged: nobody answers, and then a leader that cannot.
    report.hang_up();
    let report = bench.report().await;
    report.answer(
        200,
        &answer(&json!({"completed": [refused("j", 1, "no_leader")]})),
    );
    let report = bench.report().await;
    assert_eq!(
        report.body["completed"],
        json!([{"job": "j", "attempt": 1, "code": 3}])
    );
    assert_eq!(report.body["holds"], json!([attempt("j", 1)]));
    report.answer(
        200,
        &answer(&json!({"completed": [accepted("j", 1, "complete")]})),
    );

    // Forgotten; an old offer is still recognised, the next attempt is another one.
    bench.until_empty_handed(&launches).await;
    bench
        .held()
        .await
        .answer(200, &answer(&json!({"launches": [offer("j", 2)]})));
    let report = bench.report().await;
    assert_eq!(report.body["started"], json!([attempt("j", 2)]));
    assert!(bench.nothing_runs());
}

#[tokio::test]
async fn a_refused_confirmation_never_runs() {
    for code in ["stale_attempt", "final", "unknown_job"] {
        let mut bench = Bench::start().await;
        bench
            .held()
            .await
            .answer(200, &answer(&json!({"launches": [offer("j", 1)]})));
        let report = bench.report().await;
        report.answer(200, &answer(&json!({"started": [refused("j", 1, code)]})));
        // It stays out of hand, though it is offered again.
        bench
            .until_empty_handed(&json!({"launches": [offer("j", 1)]}))
            .await;
        assert_eq!(bench.held().await.body["holds"], json!([]));
        assert!(bench.nothing_runs(), "{code}");
    }
}

#[tokio::test]
async fn a_confirmation_is_repeated_until_it_is_definite() {
    let mut bench = Bench::start().await;
    bench
        .held()
        .await
        .answer(200, &answer(&json!({"launches": [offer("j", 1)]})));
    bench.report().await.hang_up();
    bench
        .report()
        .await
        .answer(503, &json!({"code": "no_leader", "detail": "d"}));
    let report = bench.report().await;
    report.answer(
        200,
        &answer(&json!({"started": [refused("j", 1, "unknown_outcome")]})),
    );
    // Accepted, but by an answer whose lease is over when it arrives: it counts as none.
    let report = bench.report().await;
    let late = json!({"started": [accepted("j", 1, "active")]});
    report.answer(200, &answer_with_lease(0, LONG_MS, &late));
    let report = bench.report().await;
    assert!(bench.nothing_runs());
    assert_eq!(report.body["started"], json!([attempt("j", 1)]));
    // A lease beyond all bounds is no trouble.
    report.answer(200, &answer_with_lease(u64::MAX, u64::MAX, &late));
    assert_eq!(bench.running().await.run.offer.attempt, 1);
}

#[tokio::test]
async fn the_next_attempt_waits_until_the_last_one_is_gone() {
    let mut bench = Bench::start().await;
    let mut first = bench.run_one("j").await;
    let news = json!({"stop": [{"job": "j", "attempt": 1, "reason": "stale"}],
        "launches": [offer("j", 2), offer("k", 1)]});
    bench.held().await.answer(200, &answer(&news));
    assert_eq!(
        soon("a stop", first.run.stop.requested()).await,
        Stop::Stale
    );
    let report = bench.report().await;
    assert_eq!(
        report.body["started"],
        json!([attempt("k", 1)]),
        "j still runs"
    );
    report.answer(
        200,
        &answer(&json!({"started": [refused("k", 1, "stale_attempt")]})),
    );
    first.end.send(exit(137)).expect("it runs");
    let report = bench.report().await;
    assert_eq!(report.body["started"], json!([attempt("j", 2)]));
    assert_eq!(
        report.body["completed"],
        json!([]),
        "a stale end is nobody's business"
    );
}

#[tokio::test]
async fn a_cancelled_job_ends_in_order_and_its_end_is_reported() {
    let mut bench = Bench::start().await;
    let mut executing = bench.run_one("j").await;
    let stop =
        |reason: &str| answer(&json!({"stop": [{"job": "j", "attempt": 1, "reason": reason}]}));
    bench.held().await.answer(200, &stop("cancelled"));
    let told = soon("a stop", executing.run.stop.requested()).await;
    assert_eq!(told, Stop::Cancelled);
    assert!(told.has_grace());
    // Told again and again until the end is there; the executor hears it once.
    bench.held().await.answer(200, &stop("cancelled"));
    bench.held().await.answer(200, &stop("stale"));
    assert_eq!(
        soon("a stop", executing.run.stop.requested()).await,
        Stop::Stale
    );
    executing.end.send(exit(143)).expect("it runs");
    bench.until_empty_handed(&json!({})).await;
}

#[tokio::test]
async fn a_superseded_worker_stops_what_it_runs() {
    let mut bench = Bench::start().await;
    let mut executing = bench.run_one("j").await;
    let problem = json!({"code": "superseded", "detail": "incarnation 8 polls"});
    bench.held().await.answer(409, &problem);
    let told = soon("a stop", executing.run.stop.requested()).await;
    assert_eq!(told, Stop::Dismissed);
    executing.end.send(exit(137)).expect("it runs");
    let result = bench.finished().await;
    assert!(
        matches!(result, Err(WorkerError::Superseded(_))),
        "{result:?}"
    );
}

#[tokio::test]
async fn an_unknown_server_is_told() {
    let mut bench = Bench::start().await;
    let problem = json!({"code": "unknown_server", "detail": "there is no server s1"});
    bench.held().await.answer(404, &problem);
    let result = bench.finished().await;
    assert!(matches!(result, Err(WorkerError::Refused(_))), "{result:?}");
}

#[tokio::test]
async fn the_lease_counts_from_the_last_answered_poll_and_at_its_end_all_is_killed() {
    /// Long enough that a busy machine does not lose it between two polls.
    const LEASE: Duration = Duration::from_millis(2_000);
    /// A quarter of it is left for killing.
    const TOLD_AFTER: Duration = Duration::from_millis(1_500);
    let short = |fields: &Value| answer_with_lease(2_000, LONG_MS, fields);
    let mut bench = Bench::start().await;
    let launches = json!({"launches": [offer("j", 1), offer("k", 1)]});
    bench.held().await.answer(200, &short(&launches));
    let active = json!({"started": [accepted("j", 1, "active"), accepted("k", 1, "active")]});
    bench.report().await.answer(200, &short(&active));
    let (mut obeys, mut hangs) = (bench.running().await, bench.running().await);

    // Renewed, it outlasts its length.
    let began = Instant::now();
    let mut last_sent_after = began;
    while began.elapsed() < LEASE {
        last_sent_after = Instant::now();
        bench.held().await.answer(200, &short(&json!({})));
    }
    // The last answer is late, and no further poll is answered.
    let late = bench.held().await;
    let last_sent_before = Instant::now();
    tokio::time::sleep_until(last_sent_before + LEASE / 4).await;
    let answered = Instant::now();
    late.answer(200, &short(&json!({})));

    let told = soon("a stop", obeys.run.stop.requested()).await;
    assert_eq!(told, Stop::LeaseExpired);
    assert!(!told.has_grace());
    assert!(
        last_sent_after.elapsed() >= TOLD_AFTER,
        "not before the renewed lease ends"
    );
    assert!(
        answered.elapsed() < TOLD_AFTER,
        "counted from the sending, not from the answer"
    );
    assert_eq!(
        soon("a stop", hangs.run.stop.requested()).await,
        Stop::LeaseExpired
    );
    obeys.end.send(exit(137)).expect("it runs");
    // Who does not obey is dropped at the end of the lease.
    soon("the executor is dropped", hangs.end.closed()).await;
    assert!(last_sent_after.elapsed() >= LEASE, "not before");

    // The ends are told to whoever answers next.
    let mut ends = [
        json!({"job": obeys.run.offer.job, "attempt": 1, "code": 137}),
        json!({"job": hangs.run.offer.job, "attempt": 1, "code": CODE_KILLED,
            "description": "the executor was dropped at the end of the lease"}),
    ];
    ends.sort_by_key(|end| end["job"].to_string());
    let told = async {
        loop {
            let report = bench.report().await;
            let completed = report.body["completed"].clone();
            if completed
                .as_array()
                .is_some_and(|list| list.len() == ends.len())
            {
                return completed;
            }
            report.hang_up();
        }
    };
    assert_eq!(soon("both ends", told).await, json!(ends));
}

const IN_ORDER: Departure = Departure {
    stopped: 0,
    unreported: 0,
};

#[tokio::test]
async fn a_worker_that_drains_finishes_what_it_has_and_leaves() {
    let mut bench = Bench::start().await;
    let executing = bench.run_one("j").await;
    // The confirmation of `k` is on its way when the order comes: it may be accepted.
    bench
        .held()
        .await
        .answer(200, &answer(&json!({"launches": [offer("k", 1)]})));
    let report = bench.report().await;
    assert_eq!(report.body["started"], json!([attempt("k", 1)]));
    // What is offered while it is on its way is not confirmed yet.
    bench
        .held()
        .await
        .answer(200, &answer(&json!({"launches": [offer("l", 1)]})));
    let held = bench.held().await;
    let three = json!([attempt("j", 1), attempt("k", 1), attempt("l", 1)]);
    assert_eq!(held.body["holds"], three);
    bench.orders.send_replace(Order::Drain);
    held.answer(200, &answer(&json!({"launches": [offer("m", 1)]})));
    let held = bench.held().await;
    assert_eq!(held.body["draining"], true);
    let two = json!([attempt("j", 1), attempt("k", 1)]);
    assert_eq!(held.body["holds"], two, "nothing that is not confirmed");
    report.answer(
        200,
        &answer(&json!({"started": [accepted("k", 1, "active")]})),
    );
    bench.told().await;
    let confirmed = bench.running().await;
    assert_eq!(confirmed.run.offer.job, "k");
    for (executing, job) in [(executing, "j"), (confirmed, "k")] {
        executing.end.send(exit(0)).expect("it runs");
        bench.report().await.answer(
            200,
            &answer(&json!({"completed": [accepted(job, 1, "complete")]})),
        );
    }
    bench.leave().await;
    assert_eq!(bench.finished().await.expect("in order"), IN_ORDER);
}

#[tokio::test]
async fn a_worker_that_has_nothing_leaves_at_once() {
    let mut bench = Bench::start().await;
    bench.held().await.answer(200, &answer(&json!({})));
    bench.orders.send_replace(Order::Drain);
    bench.leave().await;
    assert_eq!(bench.finished().await.expect("in order"), IN_ORDER);
}

#[tokio::test]
async fn the_cluster_can_ask_a_worker_to_drain() {
    let mut bench = Bench::start().await;
    let executing = bench.run_one("j").await;
    let asks = json!({"drain": true, "launches": [offer("k", 1)]});
    bench.held().await.answer(200, &answer(&asks));
    bench.told().await;
    executing.end.send(exit(0)).expect("it runs");
    bench.report().await.answer(
        200,
        &answer(&json!({"completed": [accepted("j", 1, "complete")]})),
    );
    bench.leave().await;
    assert_eq!(bench.finished().await.expect("in order"), IN_ORDER);
}

#[tokio::test]
async fn a_drain_that_takes_too_long_stops_what_runs_and_reports_it() {
    let mut bench = Bench::start_with(Some(Duration::from_millis(50))).await;
    let mut executing = bench.run_one("j").await;
    bench.orders.send_replace(Order::Drain);
    bench.told().await;
    let told = soon("a stop", executing.run.stop.requested()).await;
    assert_eq!(told, Stop::DrainEnded);
    assert!(told.has_grace());
    bench.orders.send_replace(Order::Kill);
    let told = soon("a stop", executing.run.stop.requested()).await;
    assert_eq!(told, Stop::Shutdown);
    assert!(!told.has_grace());
    executing.end.send(exit(137)).expect("it runs");
    let report = bench.report().await;
    let end = json!([{"job": "j", "attempt": 1, "code": 137}]);
    assert_eq!(report.body["completed"], end);
    report.answer(
        200,
        &answer(&json!({"completed": [accepted("j", 1, "complete")]})),
    );
    bench.leave().await;
    let departure = bench.finished().await.expect("it was told to");
    let one_stopped = Departure {
        stopped: 1,
        unreported: 0,
    };
    assert_eq!(departure, one_stopped);
}

#[tokio::test]
async fn a_description_keeps_its_tail() {
    let mut bench = Bench::start().await;
    let executing = bench.run_one("j").await;
    let description = format!("{}the end", "é".repeat(5_000));
    let ending = Ending {
        code: 0,
        description: Some(description),
    };
    executing.end.send(ending).expect("it runs");
    let report = bench.report().await;
    let told = report.body["completed"][0]["description"]
        .as_str()
        .expect("text");
    assert!(told.len() <= 4_096 && told.len() > 4_000 && told.ends_with("éthe end"));
}

#[tokio::test]
async fn an_executor_that_panics_is_an_end() {
    let node = FakeNode::start().await;
    let client = Client::connect([&node.url]).expect("a URL");
    let options = WorkerOptions {
        incarnation: 7,
        ..WorkerOptions::new("s1")
    };
    let execute = |run: Run| async move {
        assert_ne!(run.offer.job, "j", "a fault of the executor");
        Ending::default()
    };
    let worker = tokio::spawn(async move { client.worker(options, execute, pending()).await });
    let (_sender, runs) = mpsc::channel(RUNS_MAX);
    let mut bench = Bench {
        node,
        runs,
        orders: watch::channel(Order::Work).0,
        worker,
    };
    bench
        .held()
        .await
        .answer(200, &answer(&json!({"launches": [offer("j", 1)]})));
    let report = bench.report().await;
    report.answer(
        200,
        &answer(&json!({"started": [accepted("j", 1, "active")]})),
    );
    let report = bench.report().await;
    assert_eq!(
        report.body["completed"],
        json!([{"job": "j", "attempt": 1, "code": CODE_KILLED, "description": "the executor panicked"}])
    );
}
