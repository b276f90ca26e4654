//! Making a server known, so that its worker's polls are answered.

use fermata_api::problem::ErrorCode;
use fermata_api::servers::{ServerBody, ServerView};
use tracing::warn;

use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// Makes a server known as it is to be, and tries for as long as no node can be reached. One that
    /// was disabled stays so: that is for those to decide who run the cluster.
    ///
    /// # Errors
    /// The cluster refuses it: among others `invalid_request`.
    pub async fn register_server(
        &self,
        server: &str,
        body: &ServerBody,
    ) -> Result<ServerView, ClientError> {
        let mut body = body.clone();
        loop {
            let registered = match self.server(server).await {
                Ok(view) => {
                    body.enabled = view.enabled;
                    self.put_server(server, &body).await
                }
                Err(error) if error.code() == Some(ErrorCode::UnknownServer) => {
                    self.put_server(server, &body).await
                }
                Err(error) => Err(error),
            };
            match registered {
                Err(error @ (ClientError::Unavailable { .. } | ClientError::Unknown { .. })) => {
                    warn!(%error, "not registered yet");
                }
                registered => return registered,
            }
        }
    }
}
