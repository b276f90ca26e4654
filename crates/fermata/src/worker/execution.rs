//! One attempt as one process: its input, its output, its end.

use std::time::Duration;

use fermata_api::bounds::DESCRIPTION_BYTES_MAX;
use fermata_api::servers::Offer;
use fermata_client::worker::{Ending, Run, StopSignal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::Receiver;
use tokio::process::ChildStdin;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{error, info};

use super::journal::Journal;
use super::prepared::{Process, Processes};
use crate::group::{CODE_NOT_RUN, Group, Order, exit_code};

/// How long the output of a command that has ended is waited for: a process that left its group
/// may hold it open for ever.
const OUTPUT_WAIT_MAX: Duration = Duration::from_secs(1);
/// Bytes of output that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// How a worker executes attempts.
#[derive(Debug)]
pub(crate) struct Execution {
    /// The server that the worker is.
    pub(crate) server: String,
    /// Its processes.
    pub(crate) processes: Processes,
    /// How long a command has between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
    /// Where executions are recorded.
    pub(crate) journal: Option<Journal>,
}

impl Execution {
    /// Executes an attempt that was confirmed.
    pub(crate) async fn execute(&self, mut run: Run) -> Ending {
        if let Some(journal) = &self.journal
            && let Err(error) = journal.begins(&self.server, &run).await
        {
            return not_begun(&run, &error);
        }
        info!(job = run.offer.job, attempt = run.offer.attempt, "begins");
        let ending = match self.processes.take() {
            Ok(process) => self.attend(process, &mut run).await,
            Err(error) => not_begun(&run, &error),
        };
        if let Some(journal) = &self.journal
            && let Err(error) = journal.ended(&self.server, &run, ending.code).await
        {
            // The job is done: its end is true, whether it was written down or not.
            error!(%error, job = run.offer.job, "an end was not recorded");
        }
        let (job, attempt) = (&run.offer.job, run.offer.attempt);
        info!(job, attempt, code = ending.code, "ended");
        ending
    }

    async fn attend(&self, process: Process, run: &mut Run) -> Ending {
        let Process {
            mut child,
            group,
            input,
            output,
        } = process;
        let mut tail = Tail::new(output);
        let input = feed(input, &self.server, &run.offer);
        let waited = {
            let mut input = std::pin::pin!(input);
            let mut is_fed = false;
            let mut kill_at = None;
            loop {
                tokio::select! {
                    status = child.wait() => break status,
                    () = tail.read(), if !tail.is_over => {}
                    () = &mut input, if !is_fed => {
                        is_fed = true;
                        // This one is on its way: the next one may be faster.
                        self.processes.prepare();
                    }
                    () = self.stopped(&mut run.stop, &group, &mut kill_at) => {}
                }
            }
        };
        group.finish();
        // Nobody of the group is left to write: what comes is what was written.
        let _ = timeout(OUTPUT_WAIT_MAX, tail.read()).await;
        match waited {
            Ok(status) => Ending {
                code: exit_code(status).into(),
                description: tail.into_description(),
            },
            Err(error) => not_begun(run, &error),
        }
    }

    /// Acts upon an order to stop, or upon the end of the grace. Cancel safe.
    async fn stopped(&self, stop: &mut StopSignal, group: &Group, kill_at: &mut Option<Instant>) {
        tokio::select! {
            order = stop.requested() => {
                if order.has_grace() && kill_at.is_none() {
                    group.terminate();
                    *kill_at = Some(Instant::now() + self.grace);
                } else if !order.has_grace() {
                    group.kill();
                }
            }
            () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                group.kill();
                *kill_at = None;
            }
        }
    }
}

/// What a command is told about its job, beside its parameters on standard input.
fn order(server: &str, offer: &Offer) -> Order {
    let place = offer.start_index;
    let mut order = Order::default();
    let attempt = offer.attempt.to_string();
    let priority = offer.priority.get().to_string();
    let start_at = offer.start_at.to_string();
    let start_at_us = offer.start_at_us.to_string();
    let start_index = format!("{}.{}", place.index, place.ordinal);
    for (name, value) in [
        ("FERMATA_JOB", Some(&*offer.job)),
        ("FERMATA_ATTEMPT", Some(&*attempt)),
        ("FERMATA_POOL", Some(&*offer.pool)),
        ("FERMATA_PRIORITY", Some(&*priority)),
        ("FERMATA_SERVER", Some(server)),
        ("FERMATA_START_AT", Some(&*start_at)),
        ("FERMATA_START_AT_US", Some(&*start_at_us)),
        ("FERMATA_START_INDEX", Some(&*start_index)),
        // What an outer job left in this process's own environment is none of this job's.
        ("FERMATA_EVENT", offer.event.as_deref()),
        (
            "FERMATA_PARAMS",
            offer.params.as_ref().map(|params| params.as_json()),
        ),
    ] {
        order.variable(name, value);
    }
    order
}

/// Has the process begin, and gives it the parameters; nothing where there are none. What does not
/// fit into the pipe yet is written by the future: a command that does not read its parameters does
/// not need them.
fn feed(input: Option<ChildStdin>, server: &str, offer: &Offer) -> impl Future<Output = ()> {
    let params = offer.params.as_ref().map(|params| params.as_json());
    let params = params.unwrap_or_default().as_bytes();
    let bytes = [&order(server, offer).to_bytes(), params].concat();
    // At once: the runtime writes when it has looked at its descriptors next, after all that is to
    // be started as well. It does not block.
    let written = input.as_ref().map(|input| rustix::io::write(input, &bytes));
    let written = written.and_then(Result::ok).unwrap_or(0);
    async move {
        if let Some(mut input) = input {
            let _ = input.write_all(&bytes[written..]).await;
        }
    }
}

fn not_begun(run: &Run, error: &dyn std::error::Error) -> Ending {
    let (job, attempt) = (&run.offer.job, run.offer.attempt);
    error!(job, attempt, %error, "the worker could not execute an attempt");
    Ending {
        code: CODE_NOT_RUN.into(),
        description: Some(format!("the worker could not execute it: {error}")),
    }
}

/// The last bytes of an output.
struct Tail {
    output: Receiver,
    bytes: Vec<u8>,
    is_over: bool,
}

impl Tail {
    fn new(output: Receiver) -> Self {
        Self {
            output,
            bytes: Vec::new(),
            is_over: false,
        }
    }

    /// Reads until the output is over. Cancel safe.
    async fn read(&mut self) {
        let mut buffer = vec![0; READ_BYTES];
        while !self.is_over {
            match self.output.read(&mut buffer).await {
                Ok(0) | Err(_) => self.is_over = true,
                Ok(length) => self.keep(&buffer[..length]),
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let surplus = self.bytes.len().saturating_sub(DESCRIPTION_BYTES_MAX);
        self.bytes.drain(..surplus);
    }

    /// The tail as text; bytes that are none are replaced. The worker's loop cuts it once more,
    /// since a replacement is longer than what it stands for.
    fn into_description(self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let text = text.trim_end();
        (!text.is_empty()).then(|| text.to_owned())
    }
}
