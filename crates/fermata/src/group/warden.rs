//! The second process of whoever starts commands: it kills them when the first one does not.
//!
//! A process that is killed, stopped (SIGSTOP) or starved cannot end its commands. So there is
//! another, which does nothing else: through a pipe it is told which commands come and go, and by
//! when those are to be gone whose right to run ends by itself. It kills what is there beyond its
//! time. When the pipe ends, the first process is gone, and the warden kills all that is listed.
//!
//! Instants go over as microseconds of a clock that also runs while the machine sleeps, so that a
//! machine that wakes up finds its command killed.
//!
//! # Caveats
//!
//! - A command is listed just after it was made. Where the first process is killed in between, the
//!   kernel kills the command ([`super::becoming`]), and only that.
//! - Who kills the warden as well leaves the rest to the kernel: a process whose warden is gone says
//!   so once, and goes on.
//! - A command is named by its number. Where the first process was killed the kernel may in theory
//!   have given that number to another by the time at which the warden acts, milliseconds later.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write, stdin};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};
use tracing::{error, warn};

use super::Target;
use super::becoming::this_program;
use crate::error::CommandError;
use crate::remote::block_on;

/// The subcommand that is a warden: used by workers and `fermata exec`, not by people.
pub(crate) const WATCH_COMMANDS: &str = "watch-commands";
/// Between two looks at the clock: what sleeps does not notice that the machine slept.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// How a warden ends that had to kill.
const CODE_KILLED: u8 = 3;
/// Orders that are read at once, at most.
const READ_ORDERS_MAX: usize = 64;

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// A warden, as the first process has it.
#[derive(Clone, Debug)]
pub(crate) struct Warden {
    process: Arc<Mutex<Child>>,
}

impl Warden {
    /// Starts one for this process.
    pub(crate) fn start() -> Result<Self, CommandError> {
        let spawn = || {
            Command::new(this_program()?)
                .arg(WATCH_COMMANDS)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                // A signal of the terminal is not for it.
                .process_group(0)
                .spawn()
        };
        let process = spawn().map_err(|source| CommandError::System {
            doing: "start the process that watches over commands",
            source,
        })?;
        let process = Arc::new(Mutex::new(process));
        Ok(Self { process })
    }

    /// The command has come, or may stay until another instant; none: for as long as this process
    /// is there.
    pub(super) fn watch_over(&self, target: Target, until: Option<Instant>) {
        let stay = until.map_or(Stay::WithUs, |until| {
            // In this order: should this process be stopped in between, the end comes out too early.
            let now_us = clock_us();
            let left = until.saturating_duration_since(Instant::now());
            let left_us = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
            Stay::Until(now_us.saturating_add(left_us))
        });
        self.say(Order { target, stay });
    }

    /// The command is gone.
    pub(super) fn forget(&self, target: Target) {
        let stay = Stay::Over;
        self.say(Order { target, stay });
    }

    /// All are gone: waits until the warden is as well. Whether it had to kill.
    pub(crate) fn end(self) -> bool {
        // Its input ends with this.
        match self.lock().wait() {
            Ok(status) => status.code() == Some(CODE_KILLED.into()),
            Err(error) => {
                warn!(%error, "what watches over commands was not waited for");
                false
            }
        }
    }

    fn say(&self, order: Order) {
        let mut process = self.lock();
        let Some(orders) = &mut process.stdin else {
            return;
        };
        if let Err(error) = orders.write_all(&order.to_bytes()) {
            error!(%error, "the process that watches over commands is gone; this one goes on");
            process.stdin = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Child> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a warden is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    target: Target,
    stay: Stay,
}

/// How long a command may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    /// It is gone.
    Over,
    /// To an instant of the clock, in microseconds.
    Until(u64),
    /// As long as the first process.
    WithUs,
}

impl Order {
    /// The number of the target, and how long it may stay: 0 and the greatest number stand for what
    /// are no instants.
    const BYTES: usize = size_of::<i32>() + size_of::<u64>();

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let stay = match self.stay {
            Stay::Over => 0,
            Stay::Until(at_us) => at_us.clamp(1, u64::MAX - 1),
            Stay::WithUs => u64::MAX,
        };
        let mut bytes = [0; Self::BYTES];
        let (target, rest) = bytes.split_at_mut(size_of::<i32>());
        target.copy_from_slice(&self.target.number().to_le_bytes());
        rest.copy_from_slice(&stay.to_le_bytes());
        bytes
    }

    /// None where it was written by somebody else.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (target, stay) = bytes.split_first_chunk()?;
        let target = Target::of_number(i32::from_le_bytes(*target))?;
        let stay = match u64::from_le_bytes(stay.try_into().ok()?) {
            0 => Stay::Over,
            u64::MAX => Stay::WithUs,
            at_us => Stay::Until(at_us),
        };
        Some(Self { target, stay })
    }
}

/// Is the warden.
pub(crate) fn watch() -> Result<ExitCode, CommandError> {
    block_on(async {
        let failed = |doing| move |source| CommandError::System { doing, source };
        // What ends commands is the first one's affair; whoever ends all processes of a service
        // does not end this one first.
        let unheeded = [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
        ];
        let _unheeded = unheeded
            .into_iter()
            .map(signal)
            .collect::<io::Result<Vec<_>>>()
            .map_err(failed("listen for signals"))?;
        let orders = stdin().as_fd().try_clone_to_owned();
        let orders = orders.and_then(pipe::Receiver::from_owned_fd);
        let mut orders = orders.map_err(failed("read orders"))?;
        let mut list = List::default();
        list.follow(&mut orders).await;
        list.kill_all();
        Ok(match list.has_killed {
            true => ExitCode::from(CODE_KILLED),
            false => ExitCode::SUCCESS,
        })
    })
}

/// Whom a warden watches over, by number. Each stands in one of the two.
#[derive(Debug, Default)]
struct List {
    with_us: BTreeSet<i32>,
    /// By when they are to be gone.
    until_us: BTreeMap<i32, u64>,
    has_killed: bool,
}

impl List {
    /// Does as it is told until nobody says any more.
    async fn follow(&mut self, orders: &mut pipe::Receiver) {
        let mut bytes = [0; Order::BYTES * READ_ORDERS_MAX];
        let mut length = 0;
        loop {
            let now_us = clock_us();
            let next_us = self.kill_overdue(now_us);
            let left = next_us.map(|next_us| Duration::from_micros(next_us - now_us).min(LOOK_MAX));
            tokio::select! {
                read = orders.read(&mut bytes[length..]) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(read) => length += read,
                },
                () = sleep(left.unwrap_or_default()), if left.is_some() => continue,
            }
            let whole = length - length % Order::BYTES;
            for order in bytes[..whole].chunks(Order::BYTES) {
                match Order::of_bytes(order) {
                    Some(order) => self.take(order),
                    None => return,
                }
            }
            bytes.copy_within(whole..length, 0);
            length -= whole;
        }
    }

    fn take(&mut self, Order { target, stay }: Order) {
        let number = target.number();
        self.with_us.remove(&number);
        self.until_us.remove(&number);
        match stay {
            Stay::Over => {}
            Stay::Until(at_us) => {
                self.until_us.insert(number, at_us);
            }
            Stay::WithUs => {
                self.with_us.insert(number);
            }
        }
    }

    /// Kills whoever is there beyond its time, and answers when the next one is.
    fn kill_overdue(&mut self, now_us: u64) -> Option<u64> {
        let next = self.until_us.values().min().copied()?;
        if next > now_us {
            return Some(next);
        }
        let all = std::mem::take(&mut self.until_us).into_iter();
        let (overdue, later): (BTreeMap<_, _>, _) =
            all.partition(|(_, until_us)| *until_us <= now_us);
        self.until_us = later;
        self.kill(overdue.into_keys());
        self.until_us.values().min().copied()
    }

    /// Kills whoever is there.
    fn kill_all(&mut self) {
        let with_us = std::mem::take(&mut self.with_us);
        let until_us = std::mem::take(&mut self.until_us);
        self.kill(with_us.into_iter().chain(until_us.into_keys()));
    }

    fn kill(&mut self, numbers: impl Iterator<Item = i32>) {
        for target in numbers.filter_map(Target::of_number) {
            self.has_killed = true;
            target.send(Signal::KILL);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        let targets = [-2, 2, i32::MAX].map(|number| Target::of_number(number).expect("a target"));
        for target in targets {
            for stay in [Stay::Over, Stay::Until(1), Stay::Until(77), Stay::WithUs] {
                let order = Order { target, stay };
                assert_eq!(Order::of_bytes(&order.to_bytes()), Some(order));
            }
        }
    }

    #[test]
    fn nobody_has_everybody_killed() {
        let mut order = [0; Order::BYTES];
        for number in [0, 1, -1, i32::MIN] {
            order[..size_of::<i32>()].copy_from_slice(&i32::to_le_bytes(number));
            assert_eq!(Order::of_bytes(&order), None, "{number}");
        }
    }
}
