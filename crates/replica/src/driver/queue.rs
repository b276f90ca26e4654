//! Commands that wait to be proposed, and how they are gathered into entries.

use crate::format::{ENTRY_BYTES_MAX, command_bytes};
use crate::{ProposeError, Proposed};
use fermata_pool::command::{COMMANDS_PER_ENTRY_MAX, Command};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot};

/// Most commands that wait to be proposed.
pub const QUEUED_COMMANDS_MAX: u64 = 50_000;
/// Most bytes of commands that wait to be proposed.
pub const QUEUED_BYTES_MAX: u64 = 64 << 20;
/// Bytes of commands that are gathered into one entry; a larger one stands alone.
const GATHERED_BYTES_MAX: u64 = 1 << 20;
/// What an entry holds beside its commands, with room to spare.
const ENTRY_OVERHEAD_BYTES: u64 = 256;

pub(crate) type Answered = Result<Proposed, ProposeError>;

/// Commands of one proposal that go into one entry.
#[derive(Debug)]
pub(crate) struct Waiting {
    commands: Vec<Command>,
    count: usize,
    bytes: u64,
    answer: oneshot::Sender<Answered>,
    load: Arc<Load>,
}

/// How much waits.
#[derive(Debug, Default)]
struct Load {
    commands: AtomicU64,
    bytes: AtomicU64,
}

impl Waiting {
    /// Says what became of it; whoever proposed may have gone.
    pub(crate) fn answer(self, answered: Answered) {
        let _ = self.answer.send(answered);
    }

    /// How many commands it has.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Its commands, for an entry.
    pub(crate) fn take(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    fn leaves(&self) {
        self.load
            .commands
            .fetch_sub(self.count as u64, Ordering::Relaxed);
        self.load.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Where commands are left to be proposed.
#[derive(Clone)]
pub(crate) struct Queue {
    sender: mpsc::Sender<Waiting>,
    load: Arc<Load>,
}

impl Queue {
    pub(crate) fn new() -> (Queue, Gatherer) {
        let (sender, receiver) = mpsc::channel(QUEUED_COMMANDS_MAX as usize);
        let queue = Queue {
            sender,
            load: Arc::default(),
        };
        let gatherer = Gatherer {
            receiver,
            ahead: VecDeque::new(),
        };
        (queue, gatherer)
    }

    /// Leaves commands, in order, cut where an entry's bounds ask for it. Each receiver tells
    /// what became of one cut.
    ///
    /// # Errors
    /// Too many wait, or a command is larger than an entry; then none of them was left.
    pub(crate) fn leave(
        &self,
        commands: Vec<Command>,
    ) -> Result<Vec<oneshot::Receiver<Answered>>, ProposeError> {
        let cuts = cut(commands)?;
        let (mut count, mut bytes) = (0, 0);
        for (commands, cut_bytes) in &cuts {
            count += commands.len() as u64;
            bytes += cut_bytes;
        }
        self.take_room(count, bytes)?;
        let mut answers = Vec::with_capacity(cuts.len());
        for (commands, bytes) in cuts {
            let (answer, answered) = oneshot::channel();
            let waiting = Waiting {
                count: commands.len(),
                commands,
                bytes,
                answer,
                load: Arc::clone(&self.load),
            };
            // There are never more cuts than commands, and never more of those than places: only
            // a member that stops takes no more, and its answers end with it.
            if let Err(error) = self.sender.try_send(waiting) {
                error.into_inner().leaves();
            }
            answers.push(answered);
        }
        Ok(answers)
    }

    fn take_room(&self, commands: u64, bytes: u64) -> Result<(), ProposeError> {
        let load = &self.load;
        let commands_before = load.commands.fetch_add(commands, Ordering::Relaxed);
        let bytes_before = load.bytes.fetch_add(bytes, Ordering::Relaxed);
        if commands_before + commands <= QUEUED_COMMANDS_MAX
            && bytes_before + bytes <= QUEUED_BYTES_MAX
        {
            return Ok(());
        }
        load.commands.fetch_sub(commands, Ordering::Relaxed);
        load.bytes.fetch_sub(bytes, Ordering::Relaxed);
        Err(ProposeError::Overloaded)
    }
}

/// Cuts commands so that each cut fits into an entry; with the bytes of each.
fn cut(commands: Vec<Command>) -> Result<Vec<(Vec<Command>, u64)>, ProposeError> {
    let most = ENTRY_BYTES_MAX - ENTRY_OVERHEAD_BYTES;
    let mut cuts: Vec<(Vec<Command>, u64)> = Vec::new();
    for command in commands {
        let bytes = command_bytes(&command);
        if bytes > most {
            return Err(ProposeError::TooLarge { given: bytes, most });
        }
        match cuts.last_mut() {
            Some((cut, cut_bytes))
                if cut.len() < COMMANDS_PER_ENTRY_MAX
                    && *cut_bytes + bytes <= GATHERED_BYTES_MAX =>
            {
                cut.push(command);
                *cut_bytes += bytes;
            }
            _ => cuts.push((vec![command], bytes)),
        }
    }
    Ok(cuts)
}

/// Takes what was left, an entry's worth at a time.
pub(crate) struct Gatherer {
    receiver: mpsc::Receiver<Waiting>,
    /// Taken, but did not fit.
    ahead: VecDeque<Waiting>,
}

impl Gatherer {
    /// Waits until something was left. Dropping it takes nothing; none: the member stops.
    pub(crate) async fn ready(&mut self) -> Option<()> {
        if self.ahead.is_empty() {
            let waiting = self.receiver.recv().await?;
            self.ahead.push_back(waiting);
        }
        Some(())
    }

    /// What goes into the next entry, in order; possibly nothing.
    pub(crate) fn gather(&mut self) -> Vec<Waiting> {
        let mut gathered = Vec::new();
        let (mut commands, mut bytes) = (0, 0);
        while let Some(waiting) = self.take() {
            commands += waiting.count;
            bytes += waiting.bytes;
            let fits = commands <= COMMANDS_PER_ENTRY_MAX && bytes <= GATHERED_BYTES_MAX;
            if !fits && !gathered.is_empty() {
                self.ahead.push_front(waiting);
                break;
            }
            waiting.leaves();
            gathered.push(waiting);
        }
        gathered
    }

    fn take(&mut self) -> Option<Waiting> {
        self.ahead
            .pop_front()
            .or_else(|| self.receiver.try_recv().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cancel(name_bytes: usize) -> Command {
        Command::Cancel {
            job: "j".repeat(name_bytes).into(),
        }
    }

    #[tokio::test]
    async fn gathers_in_order_up_to_an_entrys_bounds() {
        let (queue, mut gatherer) = Queue::new();
        let mut answers = Vec::new();
        for count in [600, 400, 1] {
            answers.extend(queue.leave(vec![cancel(1); count]).expect("there is room"));
        }
        gatherer.ready().await.expect("something was left");
        let first = gatherer.gather();
        let counts =
            |gathered: &[Waiting]| -> Vec<usize> { gathered.iter().map(Waiting::count).collect() };
        assert_eq!(counts(&first), [600, 400]);
        assert_eq!(counts(&gatherer.gather()), [1]);
        assert_eq!(counts(&gatherer.gather()), [0; 0]);
    }

    #[test]
    fn cuts_what_does_not_fit_into_one_entry() {
        let lengths = |commands| -> Vec<usize> {
            let cuts = cut(commands).expect("each fits");
            cuts.iter().map(|(cut, _)| cut.len()).collect()
        };
        assert_eq!(lengths(vec![cancel(1); 2_001]), [1_000, 1_000, 1]);
        assert_eq!(lengths(vec![cancel(400 << 10); 5]), [2, 2, 1]);
        assert_eq!(
            lengths(vec![cancel(1), cancel(1_500 << 10), cancel(1)]),
            [1, 1, 1]
        );
    }

    #[test]
    fn refuses_what_no_entry_can_hold() {
        let (queue, mut gatherer) = Queue::new();
        let refused = queue.leave(vec![cancel(1), cancel(2 << 20)]);
        assert!(matches!(refused, Err(ProposeError::TooLarge { .. })));
        assert!(gatherer.gather().is_empty(), "nothing of it was left");
    }

    #[test]
    fn is_bounded_in_commands_and_in_bytes() {
        let (queue, mut gatherer) = Queue::new();
        let full = queue.leave(vec![cancel(1); QUEUED_COMMANDS_MAX as usize]);
        full.expect("exactly as many as may wait");
        let beyond = queue.leave(vec![cancel(1)]);
        assert_eq!(beyond.map(|_| ()), Err(ProposeError::Overloaded));
        assert_eq!(gatherer.gather().len(), 1);
        queue.leave(vec![cancel(1)]).expect("there is room again");

        let (queue, _gatherer) = Queue::new();
        let command = cancel(1 << 20);
        let fit = QUEUED_BYTES_MAX / command_bytes(&command);
        for _ in 0..fit {
            queue.leave(vec![command.clone()]).expect("there is room");
        }
        let beyond = queue.leave(vec![command]);
        assert_eq!(beyond.map(|_| ()), Err(ProposeError::Overloaded));
    }
}
