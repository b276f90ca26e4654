//! The command under a permit: its group, the signals that it gets, its end.

use std::ffi::OsString;
use std::future::pending;
use std::io::{IsTerminal, stdin};
use std::time::Duration;

use fermata_api::jobs::JobView;
use fermata_client::permit::PermitLease;
use fermata_client::{Permit, PermitStop};
use rustix::process::Signal;
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::error::CommandError;
use crate::group::{self, Group, Warden, exit_code};

/// How long before the end of the lease a command is killed, at most; see [`kill_margin`].
pub(super) const KILL_MARGIN: Duration = Duration::from_secs(1);

/// How long before the end of a lease of this length a command is killed.
pub(super) fn kill_margin(lease: Duration) -> Duration {
    KILL_MARGIN.min(lease / 12)
}

/// A running command.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    group: Group,
    warden: Warden,
    grace: Duration,
    kill_margin: Duration,
    kill_at: Option<Instant>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// Its exit code, or 128 and the signal.
    pub(super) code: u8,
    /// Whether it was stopped because its permit was lost, or about to be.
    pub(super) was_lost: bool,
}

impl Running {
    /// Starts the command, and what watches over it.
    pub(super) fn start(
        argv: &[OsString],
        permit: Option<&Permit>,
        grace: Duration,
        kill_margin: Duration,
    ) -> Result<Self, CommandError> {
        let warden = Warden::start()?;
        let spawn = || {
            let mut command = group::command(argv)?;
            if let Some(permit) = permit {
                describe(&mut command, permit.job());
            }
            if stdin().is_terminal() {
                Group::start_beside_us(command, &warden)
            } else {
                Group::start(command, &warden)
            }
        };
        let (child, group) = spawn().map_err(|source| CommandError::System {
            doing: "start the command",
            source,
        })?;
        let running = Self {
            child,
            group,
            warden,
            grace,
            kill_margin,
            kill_at: None,
        };
        if let Some(permit) = permit {
            running.may_last(permit.lease_ends());
        }
        Ok(running)
    }

    /// The lease ends then. This process kills the command before that; the warden, where this one
    /// does not.
    fn may_last(&self, lease_ends: Instant) {
        self.group.lasts_until(lease_ends - self.kill_margin / 2);
    }

    /// Waits for the end of the command, and stops it where it must.
    pub(super) async fn attend(
        mut self,
        mut permit: Option<&mut Permit>,
        signals: &mut Signals,
    ) -> Result<Ended, CommandError> {
        let mut lease = permit.as_deref().map(Permit::lease);
        let mut was_lost = false;
        let mut was_signalled = false;
        let status = loop {
            let kill_at = self.kill_at;
            tokio::select! {
                status = self.child.wait() => break status,
                stop = must_stop(permit.as_deref_mut()) => {
                    was_lost |= stop != PermitStop::Cancelled;
                    self.stop(stop, lease.as_ref());
                }
                ends = renewed(lease.as_mut()) => self.may_last(ends),
                signal = signals.next() => {
                    was_signalled |= self.pass_on(signal, was_signalled);
                }
                () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                    self.group.kill();
                    self.kill_at = None;
                }
            }
        };
        let status = status.map_err(|source| CommandError::System {
            doing: "wait for the command",
            source,
        })?;
        self.group.finish();
        was_lost |= self.warden.end();
        Ok(Ended {
            code: exit_code(status),
            was_lost,
        })
    }

    /// Passes a signal on; false where it is between the command and its terminal, whose keyboard
    /// reaches both.
    fn pass_on(&self, signal: Signal, is_second: bool) -> bool {
        if self.group.is_beside_us() && signal == Signal::INT {
            return false;
        }
        info!(?signal, "passing a signal on");
        self.group
            .send(if is_second { Signal::KILL } else { signal });
        true
    }

    fn stop(&mut self, stop: PermitStop, lease: Option<&PermitLease>) {
        let in_order = Instant::now() + self.grace;
        self.kill_at = match (stop, lease) {
            (PermitStop::Cancelled, _) => {
                warn!("the job was cancelled or ran for too long; stopping the command");
                Some(in_order)
            }
            (PermitStop::Lapsing, Some(lease)) => {
                warn!("the permit is not renewed; stopping the command");
                let last = lease.ends() - self.kill_margin;
                Some(self.kill_at.unwrap_or(in_order).min(in_order).min(last))
            }
            (PermitStop::Lapsing | PermitStop::Lost, _) => {
                warn!("the permit is lost; killing the command");
                return self.group.kill();
            }
        };
        self.group.terminate();
    }
}

async fn must_stop(permit: Option<&mut Permit>) -> PermitStop {
    match permit {
        Some(permit) => permit.must_stop().await,
        None => pending().await,
    }
}

async fn renewed(lease: Option<&mut PermitLease>) -> Instant {
    match lease {
        Some(lease) => {
            lease.renewed().await;
            lease.ends()
        }
        None => pending().await,
    }
}

/// What a command is told about its permit.
fn describe(command: &mut tokio::process::Command, job: &JobView) {
    command.env("FERMATA_PERMIT", &job.id);
    if let Some(place) = job.start_index {
        let index = format!("{}.{}", place.index, place.ordinal);
        command.env("FERMATA_PERMIT_INDEX", index);
    }
}

/// The signals that are passed on. One that was ignored when this program was started, as under
/// `nohup`, stays ignored, for the command too.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Option<unix::Signal>,
    interrupt: Option<unix::Signal>,
    hang_up: Option<unix::Signal>,
}

impl Signals {
    /// From now on they do not end this process by themselves. Needs a runtime.
    pub(super) fn new() -> Result<Self, CommandError> {
        let ignored = ignored_signals();
        let listen = |signal: Signal| {
            let raw = signal.as_raw();
            if ignored & (1 << (raw - 1)) != 0 {
                return Ok(None);
            }
            let listening = unix::signal(SignalKind::from_raw(raw));
            listening.map(Some).map_err(|source| CommandError::System {
                doing: "listen for signals",
                source,
            })
        };
        Ok(Self {
            terminate: listen(Signal::TERM)?,
            interrupt: listen(Signal::INT)?,
            hang_up: listen(Signal::HUP)?,
        })
    }

    /// The next one. Cancel safe.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            () = received(&mut self.terminate) => Signal::TERM,
            () = received(&mut self.interrupt) => Signal::INT,
            () = received(&mut self.hang_up) => Signal::HUP,
        }
    }
}

async fn received(signal: &mut Option<unix::Signal>) {
    match signal {
        Some(signal) => {
            if signal.recv().await.is_none() {
                pending::<()>().await;
            }
        }
        None => pending().await,
    }
}

/// The signals that this process was started to ignore, as a mask; none where the system does not
/// say.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
