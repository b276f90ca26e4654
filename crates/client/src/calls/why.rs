//! Questions: why a job waits, and what would become of one. Nothing is done, so all of them are
//! harmless to repeat.

use fermata_api::jobs::{LaunchBatch, LaunchQuery, LaunchRequest};
use fermata_api::routes;
use fermata_api::why::{DryRunAnswer, WhyView};
use http::Method;

use super::{identified, query_string};
use crate::client::{Call, Client};
use crate::error::ClientError;

impl Client {
    /// What would become of a launch now; nothing is taken, and no id is used up.
    ///
    /// # Errors
    /// Among others `event_missing`: what the launch would be refused with. One that would be
    /// aborted is no error here: it is answered so.
    pub async fn dry_run(&self, launch: LaunchRequest) -> Result<WhyView, ClientError> {
        let call = Call::new(Method::POST, dry_run()?).json(&identified(launch))?;
        self.send(&call).await?.value()
    }

    /// What would become of each of these launches if it came alone now, at most
    /// [`fermata_api::bounds::BATCH_JOBS_MAX`].
    ///
    /// # Errors
    /// As [`ClientError`]; what each would be refused with is told in its own result.
    pub async fn dry_run_batch(
        &self,
        launches: Vec<LaunchRequest>,
    ) -> Result<DryRunAnswer, ClientError> {
        let batch = LaunchBatch {
            jobs: launches.into_iter().map(identified).collect(),
        };
        let call = Call::new(Method::POST, dry_run()?).json(&batch)?;
        self.send(&call).await?.value()
    }

    /// Why the job waits: every gate, open or shut, and what holds it.
    ///
    /// # Errors
    /// Among others `unknown_job`.
    pub async fn why(&self, id: &str) -> Result<WhyView, ClientError> {
        self.get(routes::path(routes::JOB_WHY, id)).await
    }
}

/// Where dry runs go.
fn dry_run() -> Result<String, ClientError> {
    let query = LaunchQuery {
        dry_run: Some(true),
        ..LaunchQuery::default()
    };
    Ok(format!("{}{}", routes::JOBS, query_string(&query)?))
}
