//! How commands reach a cluster, and read its lists.

use std::future::Future;
use std::time::Duration;

use fermata_api::bounds::PAGE_ITEMS_MAX;
use fermata_api::query::{Page, PageQuery};
use fermata_client::{Client, ClientError, ClientOptions};

use crate::error::CommandError;

/// Where a node listens for clients unless it is told otherwise.
pub(crate) const URL_DEFAULT: &str = "http://127.0.0.1:7400";

/// Which cluster a command talks to.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RemoteArgs {
    /// Nodes of the cluster; some of them are enough, the leader is found
    #[arg(
        long,
        global = true,
        help_heading = "Cluster",
        env = "FERMATA_URL",
        value_name = "URL,…",
        value_delimiter = ',',
        default_value = URL_DEFAULT
    )]
    url: Vec<String>,
    /// How long a call may take in all, in seconds, with its repetitions
    #[arg(
        long,
        global = true,
        help_heading = "Cluster",
        env = "FERMATA_DEADLINE_S",
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=3_600)
    )]
    deadline_s: u64,
}

impl RemoteArgs {
    /// The nodes at `url`, with the default deadline.
    pub(crate) fn at(url: String) -> Self {
        Self {
            url: vec![url],
            deadline_s: 10,
        }
    }

    /// A client. Nothing is sent yet.
    pub(crate) fn client(&self) -> Result<Client, CommandError> {
        let deadline = Duration::from_secs(self.deadline_s);
        let options = ClientOptions {
            deadline,
            answer_timeout: ClientOptions::default().answer_timeout.min(deadline),
            ..ClientOptions::default()
        };
        Ok(Client::connect_with(&self.url, options)?)
    }
}

/// Runs a command's calls on this thread.
pub(crate) fn block_on<T>(
    calls: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| CommandError::System {
            doing: "start the runtime",
            source,
        })?
        .block_on(calls)
}

/// Which part of a list is shown.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Show at most so many
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    limit: u32,
    /// Go on after this place, which the list before named
    #[arg(long, value_name = "PLACE")]
    after: Option<String>,
}

impl ListArgs {
    /// Reads a list that is asked for nothing but its pages.
    pub(crate) async fn gather_plain<T, F, P>(&self, page: F) -> Result<Page<T>, CommandError>
    where
        F: Fn(PageQuery) -> P,
        P: Future<Output = Result<Page<T>, ClientError>>,
    {
        self.gather(|limit, after| {
            page(PageQuery {
                limit: Some(limit),
                after,
                ..PageQuery::default()
            })
        })
        .await
    }

    /// Reads page after page until the limit or the end of the list.
    pub(crate) async fn gather<T, F, P>(&self, page: F) -> Result<Page<T>, CommandError>
    where
        F: Fn(u32, Option<String>) -> P,
        P: Future<Output = Result<Page<T>, ClientError>>,
    {
        let mut gathered = Page {
            items: Vec::new(),
            after: self.after.clone(),
        };
        let mut left = self.limit;
        loop {
            let next = page(left.min(PAGE_ITEMS_MAX), gathered.after.take()).await?;
            left = left.saturating_sub(u32::try_from(next.items.len()).unwrap_or(u32::MAX));
            gathered.items.extend(next.items);
            gathered.after = next.after;
            if gathered.after.is_none() || left == 0 {
                return Ok(gathered);
            }
        }
    }
}

/// What stands below a list that goes on.
pub(crate) fn more<T>(page: &Page<T>) -> String {
    page.after.as_ref().map_or_else(String::new, |after| {
        format!("\nThe list goes on: --after {after}\n")
    })
}
