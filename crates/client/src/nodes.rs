//! Which node a call goes to.

use std::sync::{Mutex, MutexGuard, PoisonError};

use http::Uri;

use crate::error::ClientError;

/// The nodes that the client was told of, and the one that is believed to lead.
#[derive(Debug)]
pub(crate) struct Nodes {
    known: Vec<String>,
    choice: Mutex<Choice>,
}

#[derive(Debug)]
struct Choice {
    /// Where to ask when nobody is believed to lead: an index into `known`.
    next: usize,
    /// The last hint, until that node fails. It may be a node that the client was not told of.
    leader: Option<String>,
}

impl Nodes {
    pub(crate) fn new<I, S>(urls: I) -> Result<Self, ClientError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        let known = urls
            .into_iter()
            .map(|url| base(url.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        if known.is_empty() {
            return Err(ClientError::InvalidUrl {
                url: String::new(),
                reason: "no URL was given",
            });
        }
        // Many clients with the same list spread over it.
        let next = rand::random_range(0..known.len());
        Ok(Self {
            known,
            choice: Mutex::new(Choice { next, leader: None }),
        })
    }

    /// The node to ask now.
    pub(crate) fn target(&self) -> String {
        let choice = self.choice();
        match &choice.leader {
            Some(leader) => leader.clone(),
            None => self.known[choice.next].clone(),
        }
    }

    /// The node could not do it. Another caller may have moved on already; then nothing changes.
    pub(crate) fn failed(&self, url: &str) {
        let mut choice = self.choice();
        if choice.leader.as_deref() == Some(url) {
            choice.leader = None;
        }
        if self.known[choice.next] == url {
            choice.next = (choice.next + 1) % self.known.len();
        }
    }

    /// A node said who leads. What is no URL is ignored: it is a hint.
    pub(crate) fn hinted(&self, url: &str) {
        if let Ok(leader) = base(url) {
            self.choice().leader = Some(leader);
        }
    }

    fn choice(&self) -> MutexGuard<'_, Choice> {
        // Every change is one assignment, so a panic elsewhere leaves it whole.
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `http://HOST:PORT` without a path.
fn base(url: &str) -> Result<String, ClientError> {
    let invalid = |reason| ClientError::InvalidUrl {
        url: url.to_owned(),
        reason,
    };
    let uri: Uri = url.parse().map_err(|_| invalid("it is no URL"))?;
    if uri.scheme_str() != Some("http") {
        return Err(invalid("its scheme is not http"));
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(invalid("it has a path or query"));
    }
    let authority = uri.authority().ok_or_else(|| invalid("it has no host"))?;
    if authority.as_str().contains('@') {
        return Err(invalid("it has a user"));
    }
    Ok(format!("http://{authority}"))
}
