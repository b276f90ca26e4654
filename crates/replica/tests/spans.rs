//! Rates that decide about a start are traced, once, by the member that leads (S44).

mod harness;

use fermata_pool::command::{Command, Executor, Launch, Override};
use fermata_pool::limits::{JobLimit, Limit, LimitKind, Mode, RateLimit, Style};
use fermata_replica::RATE_SPANS_TARGET;
use harness::{Cluster, propose};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

type Fields = BTreeMap<&'static str, String>;

/// Keeps the fields of every span of a rate.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Fields>>>);

impl<S: Subscriber> Layer<S> for Seen {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        if span.metadata().target() == RATE_SPANS_TARGET {
            assert_eq!(span.metadata().name(), "rate_limit_check");
            let mut fields = Taken(Fields::new());
            span.record(&mut fields);
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(fields.0);
        }
    }
}

struct Taken(Fields);

impl Visit for Taken {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Seen {
    /// What was seen since the last look, as `key count window style outcome`.
    fn take(&self) -> Vec<String> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |fields: Fields| {
            assert_eq!(fields.len(), 5, "{fields:?}");
            [
                "rate_limit.key",
                "rate_limit.count",
                "rate_limit.window_seconds",
                "rate_limit.style",
                "rate_limit.outcome",
            ]
            .map(|name| fields[name].clone())
            .join(" ")
        };
        seen.drain(..).map(line).collect()
    }
}

fn enabled(kind: LimitKind) -> Limit {
    Limit {
        enabled: true,
        kind,
    }
}

/// One start a week of its pool, which the next waits for, and five of a bucket.
fn launch(id: &str) -> Command {
    Command::Launch(Box::new(Launch {
        id: id.into(),
        executor: Some(Executor::Caller),
        limits: vec![
            enabled(LimitKind::Job(JobLimit {
                rate: 1,
                window: Some(604_800),
                style: Some(Style::Sliding),
                cap_key: Some("pool".into()),
                mode: Some(Mode::Wait),
                ..JobLimit::default()
            })),
            bucket(None),
        ],
        ..Launch::default()
    }))
}

fn bucket(mode: Option<Mode>) -> Limit {
    enabled(LimitKind::Rate(RateLimit {
        key: "mail".into(),
        count: 5,
        per_seconds: 604_800,
        style: Some(Style::TokenBucket),
        burst: None,
        mode,
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_decision_is_one_span_of_the_leader() {
    let seen = Seen::default();
    let subscriber = tracing_subscriber::registry().with(seen.clone());
    assert!(tracing::subscriber::set_global_default(subscriber).is_ok());

    let cluster = Cluster::of(3).await;
    propose(&cluster, &launch("a")).await;
    cluster.agrees().await;
    let started = [
        "cap:pool 1 604800 sliding acquired",
        "rate:mail 5 604800 token_bucket acquired",
    ];
    assert_eq!(
        seen.take(),
        started,
        "once, though three members applied it"
    );

    propose(&cluster, &launch("b")).await;
    assert_eq!(seen.take(), ["cap:pool 1 604800 sliding throttled"]);

    let shut = Command::PutOverride {
        scope: "rate:mail".into(),
        sizes: Override {
            count: Some(0),
            window_s: Some(60),
            ..Override::default()
        },
    };
    propose(&cluster, &shut).await;
    let skipping = Command::Launch(Box::new(Launch {
        id: "c".into(),
        executor: Some(Executor::Caller),
        limits: vec![bucket(Some(Mode::Skip))],
        ..Launch::default()
    }));
    seen.take();
    propose(&cluster, &skipping).await;
    let in_force = ["rate:mail 0 60 token_bucket skipped"];
    assert_eq!(seen.take(), in_force, "the size in force is told");

    propose(&cluster, &skipping).await;
    assert_eq!(seen.take(), [""; 0], "a repetition decides nothing");
    cluster.agrees().await;
}
