//! Who a call is of, as the audit names them.
//!
//! There are no keys yet, so everybody is `anonymous`; what is known is the address from which the
//! call came to a node: `anonymous@192.0.2.7`. The name of a key will stand in its place. A node
//! that forwards a call says whose it is in a header of its own, which counts between nodes only:
//! nobody can give himself a name by sending it.

use std::convert::Infallible;
use std::net::IpAddr;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Who calls without a key.
const ANONYMOUS: &str = "anonymous";
/// Between nodes: the actor of a forwarded call.
const HEADER: HeaderName = HeaderName::from_static("fermata-actor");

/// Who a call is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Actor(Box<str>);

impl Actor {
    /// Whoever calls from this address.
    pub(crate) fn at(address: IpAddr) -> Self {
        Self(format!("{ANONYMOUS}@{}", address.to_canonical()).into())
    }

    /// The name, as the audit keeps it.
    pub(crate) fn into_name(self) -> Box<str> {
        self.0
    }

    /// Tells the leader's node whose call is forwarded.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::from_str(&self.0) {
            headers.insert(HEADER, value);
        }
    }

    /// Whose call another node has forwarded.
    pub(crate) fn take(headers: &mut HeaderMap) -> Option<Self> {
        let value = headers.remove(HEADER)?;
        value.to_str().ok().map(|name| Self(name.into()))
    }
}

impl<S: Sync> FromRequestParts<S> for Actor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let known = parts.extensions.get::<Self>().cloned();
        Ok(known.unwrap_or_else(|| Self(ANONYMOUS.into())))
    }
}
