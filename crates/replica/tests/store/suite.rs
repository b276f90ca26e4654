//! openraft's own suite, over the real store.

use super::{OWNER, open};
use fermata_replica::raft::TypeConfig;
use fermata_replica::state_machine::StateMachine;
use fermata_replica::store::{LogStore, Store};
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<TypeConfig>> {
        let folder = TempDir::new().expect("a folder");
        let Store { log, machine, .. } = open(folder.path());
        Ok((folder, log, machine))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_a_correct_raft_store() {
    assert_eq!(OWNER.node, 1);
    Suite::test_all(Builder)
        .await
        .expect("openraft's suite passes");
}
