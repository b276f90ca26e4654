//! The log of a simulated disk, as openraft wants it: the same demands as the real one keeps.

use crate::disk::{Contents, Disk, Write};
use fermata_replica::raft::{LogEntry, LogId, TypeConfig, Vote};
use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::type_config::alias;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};

/// The log.
#[derive(Clone, Debug)]
pub(crate) struct Log(pub(crate) Disk);

impl RaftLogReader<TypeConfig> for Log {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<LogEntry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let from = match range.start_bound() {
            Bound::Included(&index) => index,
            Bound::Excluded(&index) => index + 1,
            Bound::Unbounded => 0,
        };
        let within = |log: &Contents| {
            let rest = log.entries.range(from..);
            let within = rest.take_while(|(index, _)| range.contains(index));
            within.map(|(_, entry)| entry.clone()).collect()
        };
        Ok(self.0.read(within))
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.0.read(|log| log.vote))
    }
}

impl RaftLogStorage<TypeConfig> for Log {
    type LogReader = Log;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        Ok(self.0.read(|log| LogState {
            last_purged_log_id: log.purged,
            last_log_id: log.last(),
        }))
    }

    async fn get_log_reader(&mut self) -> Log {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &alias::VoteOf<TypeConfig>) -> io::Result<()> {
        self.0.write([Write::Vote(*vote)]);
        self.0.sync().await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let last = self.0.read(|log| log.last());
        self.0
            .write(committed.filter(|it| Some(*it) <= last).map(Write::Commit));
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.0.read(|log| log.committed))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.0.write(entries.into_iter().map(Write::Append));
        self.0.sync_then(callback);
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.0.write([Write::Truncate(last)]);
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.0.write([Write::Purge(upto)]);
        self.0.sync_then(IOFlushed::noop());
        Ok(())
    }
}
