//! The limits that the prefix names, as a launch has them (S2, S4).

use clap::ValueEnum;
use fermata_api::limits::{Align, JobLimit, Limit, Mode, QueueLimit, Style};

use crate::moment::duration_s;

/// The windows that can end with the wall clock (S3).
const LOCAL_WINDOWS_S: [u64; 4] = [1, 60, 3_600, 86_400];

/// The limits of one pool.
#[derive(Debug, clap::Args)]
pub(super) struct LimitArgs {
    /// The name of the limit: everything that names it shares it
    #[arg(long, value_name = "KEY")]
    key: String,
    /// Most commands at once
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = clap::value_parser!(u64).range(1..=10_000_000)
    )]
    max: Option<u64>,
    /// Most starts per window, as in 100/60 (seconds), 100/1m or 5/1h
    #[arg(long, value_name = "STARTS/WINDOW", value_parser = rate)]
    rate: Option<Rate>,
    /// How starts are counted: `fixed` windows end with the clock, `sliding` allows no more in any
    /// window, `token-bucket` paces
    #[arg(
        long,
        value_enum,
        value_name = "STYLE",
        default_value_t,
        requires = "rate"
    )]
    style: StyleArg,
    /// Where fixed windows end: with the conductors' local clock, which windows of 1, 60, 3600 and
    /// 86400 s do unless this says otherwise, or with multiples of the window since 1970 (UTC)
    #[arg(long, value_enum, value_name = "CLOCK", requires = "rate")]
    align: Option<AlignArg>,
    /// Most starts in one go out of a full token bucket; else as many as the rate
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "rate",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000)
    )]
    burst: Option<u64>,
    /// Most that wait; the next one is not permitted
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000)
    )]
    queue: u64,
}

/// So many starts in so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    starts: u64,
    window_s: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum StyleArg {
    #[default]
    Fixed,
    Sliding,
    TokenBucket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AlignArg {
    Local,
    Utc,
}

impl LimitArgs {
    /// What a launch asks for: one that may not wait has no queue.
    pub(super) fn limits(&self, is_skipping: bool) -> Vec<Limit> {
        let style = self.rate.map(|_| match self.style {
            StyleArg::Fixed => Style::Fixed,
            StyleArg::Sliding => Style::Sliding,
            StyleArg::TokenBucket => Style::TokenBucket,
        });
        let job = Limit::Job(JobLimit {
            enabled: true,
            amount: self.max.unwrap_or(0),
            rate: self.rate.map_or(0, |rate| rate.starts),
            window: self.rate.map(|rate| rate.window_s),
            cap_key: Some(self.key.clone()),
            style,
            align: self.align(),
            burst: self.burst,
            mode: self.rate.filter(|_| is_skipping).map(|_| Mode::Skip),
            weight: None,
        });
        let queue = Limit::Queue(QueueLimit {
            enabled: true,
            amount: self.queue,
        });
        let queue = (!is_skipping).then_some(queue);
        [job].into_iter().chain(queue).collect()
    }

    /// What is said about the alignment: nothing where the rules' default is meant.
    fn align(&self) -> Option<Align> {
        let rate = self.rate?;
        match self.align {
            Some(AlignArg::Local) => Some(Align::Local),
            Some(AlignArg::Utc) => Some(Align::Utc),
            None if self.style != StyleArg::Fixed => None,
            None if LOCAL_WINDOWS_S.contains(&rate.window_s) => None,
            None => Some(Align::Utc),
        }
    }
}

/// Reads `100/60` or `100/1m`.
fn rate(text: &str) -> Result<Rate, String> {
    let allowed = "starts per window, as in 100/60, 100/1m or 5/1h, from 1/1 on, are allowed";
    let (starts, window) = text.split_once('/').ok_or(allowed)?;
    let starts = starts.parse().ok().filter(|starts| *starts > 0);
    let window_s = match window.parse() {
        Ok(seconds) => Some(seconds).filter(|seconds| *seconds > 0),
        Err(_) => duration_s(window).ok(),
    };
    match (starts, window_s) {
        (Some(starts), Some(window_s)) => Ok(Rate { starts, window_s }),
        _ => Err(allowed.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        limits: LimitArgs,
    }

    #[test]
    fn each_prefix_is_these_limits() {
        let queue = json!({"enabled": true, "type": "queue", "amount": 1_000});
        let cases = [
            (
                "--max 5 --rate 100/60",
                json!({"amount": 5, "rate": 100, "window": 60, "style": "fixed"}),
            ),
            ("--max 1", json!({"amount": 1, "rate": 0})),
            (
                "--rate 7/90s",
                json!({"amount": 0, "rate": 7, "window": 90, "style": "fixed", "align": "utc"}),
            ),
            (
                "--rate 7/1h --align utc",
                json!({"amount": 0, "rate": 7, "window": 3_600, "style": "fixed", "align": "utc"}),
            ),
            (
                "--rate 7/90 --style sliding",
                json!({"amount": 0, "rate": 7, "window": 90, "style": "sliding"}),
            ),
            (
                "--rate 7/1m --style token-bucket --burst 2",
                json!({"amount": 0, "rate": 7, "window": 60, "style": "token_bucket", "burst": 2}),
            ),
        ];
        for (line, expected) in cases {
            let args = format!("exec --key k {line}");
            let parsed = Line::try_parse_from(args.split(' ')).expect(line);
            let mut job = expected;
            job["enabled"] = true.into();
            job["type"] = "job".into();
            job["cap_key"] = "k".into();
            let waiting = serde_json::to_value(parsed.limits.limits(false)).expect("JSON");
            assert_eq!(waiting, json!([job, queue]), "{line}");
            if job["rate"] != 0 {
                job["mode"] = "skip".into();
            }
            let skipping = serde_json::to_value(parsed.limits.limits(true)).expect("JSON");
            assert_eq!(skipping, json!([job]), "{line}");
        }
    }

    #[test]
    fn a_rate_has_starts_and_a_window() {
        let is = |starts, window_s| Ok(Rate { starts, window_s });
        assert_eq!(rate("100/60"), is(100, 60));
        assert_eq!(rate("5/2h"), is(5, 7_200));
        for wrong in [
            "", "100", "/60", "100/", "0/60", "100/0", "-1/60", "1/m", "1.5/60", "1/60/2",
        ] {
            assert!(rate(wrong).is_err(), "{wrong:?}");
        }
    }
}
