//! The second process of `fermata exec`: it kills the command when the first one does not.
//!
//! A process that is stopped (SIGSTOP), starved or killed cannot stop its command before the lease
//! ends. So there is another, which does nothing else: on its standard input it is told when the
//! lease ends, again with each renewal, and at last that all is done. When the end comes near, or
//! its input ends without that word, it kills the command with its group.
//!
//! Instants go over as microseconds of a clock that also runs while the machine sleeps, so that a
//! machine that wakes up finds its command killed.
//!
//! # Caveats
//!
//! - A command is named by its number. Where the first process was killed the kernel may in theory
//!   have given that number to another by the time at which the second one acts, milliseconds later.

use std::ffi::OsString;
use std::io::{self, stdin};
use std::os::fd::AsFd;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::command::Signals;
use crate::error::CommandError;
use crate::remote::block_on;
use crate::worker::group::this_program;

/// The subcommand that is the second process: used by the first, not by people.
pub(crate) const WATCH_COMMAND: &str = "watch-command";
/// Says that the command is killed with its group.
const GROUP: &str = "--group";
/// Says that the command is killed by itself.
const PROCESS: &str = "--process";
/// Between two looks at the clock: what sleeps does not notice that the machine slept.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// How the second process ends when it had to kill.
const CODE_KILLED: u8 = 3;
/// What is told at last.
const DONE: u64 = 0;

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The watching process, as the first one has it.
#[derive(Debug)]
pub(super) struct Watch {
    process: Child,
    /// Gone once it could not be told any more.
    orders: Option<ChildStdin>,
    margin: Duration,
}

impl Watch {
    /// Has the command watched: with its group, or where it `is_alone` in ours, by itself. It is
    /// killed this `margin` before the lease ends.
    pub(super) fn start(command: Pid, is_alone: bool, margin: Duration) -> io::Result<Self> {
        let number = command.as_raw_nonzero().to_string();
        let mut process = Command::new(this_program()?)
            .arg(WATCH_COMMAND)
            .arg(if is_alone { PROCESS } else { GROUP })
            .arg(number)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let orders = process.stdin.take();
        Ok(Self {
            process,
            orders,
            margin,
        })
    }

    /// The lease ends then, unless told otherwise.
    pub(super) async fn tell(&mut self, ends: Instant) {
        // In this order: should this process be stopped in between, the end comes out too early.
        let now_us = clock_us();
        let left = ends.saturating_duration_since(Instant::now());
        let left_us = left.saturating_sub(self.margin).as_micros();
        let at_us = now_us.saturating_add(u64::try_from(left_us).unwrap_or(u64::MAX));
        self.say(at_us.max(DONE + 1)).await;
    }

    /// The command has ended: waits until the watch has as well. Whether it had to kill.
    pub(super) async fn done(mut self) -> bool {
        self.say(DONE).await;
        self.orders = None;
        match self.process.wait().await {
            Ok(status) => status.code() == Some(CODE_KILLED.into()),
            Err(error) => {
                warn!(%error, "what watched the command was not waited for");
                false
            }
        }
    }

    async fn say(&mut self, order: u64) {
        let Some(orders) = &mut self.orders else {
            return;
        };
        if let Err(error) = orders.write_all(&order.to_le_bytes()).await {
            // It has killed, and the command's end is about to be seen; or it was killed itself.
            info!(%error, "nothing watches the command any more");
            self.orders = None;
        }
    }
}

/// What the second process kills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchArgs {
    command: Pid,
    is_alone: bool,
}

/// Is the second process.
pub(crate) fn watch(args: WatchArgs) -> Result<ExitCode, CommandError> {
    block_on(async {
        // What ends the command is the first one's affair; whoever ends all processes of a service
        // does not end this one first.
        let _unheeded = Signals::new()?;
        let orders = stdin().as_fd().try_clone_to_owned();
        let orders = orders.and_then(pipe::Receiver::from_owned_fd);
        let orders = orders.map_err(|source| CommandError::System {
            doing: "read orders",
            source,
        })?;
        if is_done_in_time(orders).await {
            return Ok(ExitCode::SUCCESS);
        }
        args.kill();
        Ok(ExitCode::from(CODE_KILLED))
    })
}

impl WatchArgs {
    /// Reads what [`Watch::start`] wrote; none where something else did.
    pub(crate) fn read(words: &[OsString]) -> Option<Self> {
        let [which, number] = words else {
            return None;
        };
        let is_alone = match which.to_str()? {
            PROCESS => true,
            GROUP => false,
            _ => return None,
        };
        let number: i32 = number.to_str()?.parse().ok()?;
        let command = Pid::from_raw(number).filter(|_| number > 0)?;
        Some(Self { command, is_alone })
    }

    fn kill(self) {
        // Nobody is left, or nobody may: there is nothing more to do.
        let _ = if self.is_alone {
            kill_process(self.command, Signal::KILL)
        } else {
            kill_process_group(self.command, Signal::KILL)
        };
    }
}

/// Reads orders until all is done; false when the time is over or nobody is there to say more.
async fn is_done_in_time(mut orders: pipe::Receiver) -> bool {
    let mut ends_us = None;
    let mut order = [0; size_of::<u64>()];
    let mut length = 0;
    loop {
        let left = ends_us.map(|ends_us: u64| {
            Duration::from_micros(ends_us.saturating_sub(clock_us())).min(LOOK_MAX)
        });
        if left == Some(Duration::ZERO) {
            return false;
        }
        tokio::select! {
            read = orders.read(&mut order[length..]) => match read {
                Ok(0) | Err(_) => return false,
                Ok(bytes) => length += bytes,
            },
            () = sleep(left.unwrap_or_default()), if left.is_some() => continue,
        }
        if length == order.len() {
            length = 0;
            match u64::from_le_bytes(order) {
                DONE => return true,
                at_us => ends_us = Some(at_us),
            }
        }
    }
}

/// The clock of orders, in microseconds.
fn clock_us() -> u64 {
    let now = clock_gettime(CLOCK);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1_000_000 + nanos / 1_000
}
