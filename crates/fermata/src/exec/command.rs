//! The command under a permit: its group, the signals that it gets, its end.

use std::ffi::OsString;
use std::future::pending;
use std::io::{self, IsTerminal, stdin};
use std::time::Duration;

use fermata_api::jobs::JobView;
use fermata_client::permit::PermitLease;
use fermata_client::{Permit, PermitStop};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::watch::Watch;
use crate::error::CommandError;
use crate::worker::exit_code;
use crate::worker::group;

/// How long before the end of the lease a command is killed, at most; see [`kill_margin`].
pub(super) const KILL_MARGIN: Duration = Duration::from_secs(1);

/// How long before the end of a lease of this length a command is killed.
pub(super) fn kill_margin(lease: Duration) -> Duration {
    KILL_MARGIN.min(lease / 12)
}

/// What is signalled: a group, or where a terminal is at work, a process of the terminal's group.
#[derive(Clone, Copy, Debug)]
enum Target {
    Group(Pid),
    Process(Pid),
}

impl Target {
    fn send(self, signal: Signal) {
        let sent = match self {
            Self::Group(group) => kill_process_group(group, signal),
            // The keyboard's reaches it anyway.
            Self::Process(_) if signal == Signal::INT => Ok(()),
            Self::Process(pid) => kill_process(pid, signal),
        };
        match sent {
            // Nobody is left.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => warn!(%error, ?signal, "the command was not signalled"),
        }
    }
}

/// A running command.
#[derive(Debug)]
pub(super) struct Running {
    target: Target,
    child: Child,
    watch: Watch,
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
    /// Starts the command, and what watches it.
    pub(super) async fn start(
        argv: &[OsString],
        permit: Option<&Permit>,
        grace: Duration,
        kill_margin: Duration,
    ) -> io::Result<Self> {
        let is_interactive = stdin().is_terminal();
        let mut command = if is_interactive {
            group::command_beside_us(argv)?
        } else {
            group::command(argv)?
        };
        if let Some(permit) = permit {
            describe(&mut command, permit.job());
        }
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        let target = if is_interactive {
            Target::Process(pid)
        } else {
            Target::Group(pid)
        };
        let mut watch = Watch::start(pid, is_interactive, kill_margin / 2)?;
        if let Some(permit) = permit {
            watch.tell(permit.lease_ends()).await;
        }
        Ok(Self {
            target,
            child,
            watch,
            grace,
            kill_margin,
            kill_at: None,
        })
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
                ends = renewed(lease.as_mut()) => self.watch.tell(ends).await,
                signal = signals.next() => {
                    info!(?signal, "passing a signal on");
                    self.target.send(if was_signalled { Signal::KILL } else { signal });
                    // Ctrl-C is between the command and its terminal.
                    let is_keyboard =
                        matches!(self.target, Target::Process(_)) && signal == Signal::INT;
                    was_signalled |= !is_keyboard;
                }
                () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                    self.target.send(Signal::KILL);
                    self.kill_at = None;
                }
            }
        };
        let status = status.map_err(|source| CommandError::System {
            doing: "wait for the command",
            source,
        })?;
        if matches!(self.target, Target::Group(_)) {
            // What it left behind. A group's number is not used again while it has members;
            // without any, it would have to be used again at once to be mistaken.
            self.target.send(Signal::KILL);
        }
        was_lost |= self.watch.done().await;
        Ok(Ended {
            code: u8::try_from(exit_code(status)).unwrap_or(u8::MAX),
            was_lost,
        })
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
                return self.target.send(Signal::KILL);
            }
        };
        self.target.send(Signal::TERM);
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
