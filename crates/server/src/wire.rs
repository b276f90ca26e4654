//! Calls and answers between the edges of two nodes, as bytes that the replica carries unread.
//!
//! A call is its method, path and query, the headers that matter to it, and its body. An answer is
//! its status, whether the node turned out not to lead, its headers, and its body. Both begin with
//! a version; numbers are little-endian; every length is checked before it is used.

use axum::body::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

/// The first byte of every call and answer.
///
/// 1 (2026-11-30): the format as described above.
const VERSION: u8 = 1;
/// Most headers of a call or answer.
const HEADERS_MAX: u16 = 64;

/// A call on its way to the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The leader's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The node does not lead and did nothing: the call may be tried elsewhere.
    pub(crate) is_unled: bool,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why bytes of another node are no call or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// Another version of this program speaks another format.
    #[error("version {0} of the format is not known, {VERSION} is")]
    Version(u8),
    /// It ends early or has more than its lengths say.
    #[error("its length is wrong")]
    Length,
    /// A part is not what it should be.
    #[error("its {0} is malformed")]
    Malformed(&'static str),
}

impl Call {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let target = self
            .uri
            .path_and_query()
            .map_or("/", http::uri::PathAndQuery::as_str);
        let mut bytes = Vec::with_capacity(self.body.len() + target.len() + 256);
        bytes.push(VERSION);
        put(&mut bytes, self.method.as_str().as_bytes());
        put(&mut bytes, target.as_bytes());
        put_headers(&mut bytes, &self.headers);
        put(&mut bytes, &self.body);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut rest = version(bytes)?;
        let method = Method::from_bytes(take(&mut rest)?);
        let uri = Uri::try_from(take(&mut rest)?);
        let headers = take_headers(&mut rest)?;
        let body = Bytes::copy_from_slice(take(&mut rest)?);
        end(rest)?;
        Ok(Self {
            method: method.map_err(|_| WireError::Malformed("method"))?,
            uri: uri.map_err(|_| WireError::Malformed("path"))?,
            headers,
            body,
        })
    }
}

impl Answer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.body.len() + 256);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.status.as_u16().to_le_bytes());
        bytes.push(u8::from(self.is_unled));
        put_headers(&mut bytes, &self.headers);
        put(&mut bytes, &self.body);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut rest = version(bytes)?;
        let status = u16::from_le_bytes(array(&mut rest)?);
        let [unled] = array(&mut rest)?;
        let headers = take_headers(&mut rest)?;
        let body = Bytes::copy_from_slice(take(&mut rest)?);
        end(rest)?;
        Ok(Self {
            status: StatusCode::from_u16(status).map_err(|_| WireError::Malformed("status"))?,
            is_unled: match unled {
                0 => false,
                1 => true,
                _ => return Err(WireError::Malformed("flag")),
            },
            headers,
            body,
        })
    }
}

fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    // Bodies are bounded to megabytes and headers to less; a longer part than 4 GiB does not occur,
    // and would be refused by its reader for its length.
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(part);
}

fn put_headers(bytes: &mut Vec<u8>, headers: &HeaderMap) {
    let count = u16::try_from(headers.len()).unwrap_or(u16::MAX);
    bytes.extend_from_slice(&count.to_le_bytes());
    for (name, value) in headers {
        put(bytes, name.as_str().as_bytes());
        put(bytes, value.as_bytes());
    }
}

fn version(bytes: &[u8]) -> Result<&[u8], WireError> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((&other, _)) => Err(WireError::Version(other)),
        None => Err(WireError::Length),
    }
}

fn array<const LENGTH: usize>(rest: &mut &[u8]) -> Result<[u8; LENGTH], WireError> {
    let (taken, left) = rest.split_first_chunk().ok_or(WireError::Length)?;
    *rest = left;
    Ok(*taken)
}

fn take<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], WireError> {
    let length = u32::from_le_bytes(array(rest)?) as usize;
    let (taken, left) = rest.split_at_checked(length).ok_or(WireError::Length)?;
    *rest = left;
    Ok(taken)
}

fn take_headers(rest: &mut &[u8]) -> Result<HeaderMap, WireError> {
    let count = u16::from_le_bytes(array(rest)?);
    if count > HEADERS_MAX {
        return Err(WireError::Malformed("number of headers"));
    }
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let name = HeaderName::from_bytes(take(rest)?);
        let value = HeaderValue::from_bytes(take(rest)?);
        match (name, value) {
            (Ok(name), Ok(value)) => headers.append(name, value),
            _ => return Err(WireError::Malformed("header")),
        };
    }
    Ok(headers)
}

fn end(rest: &[u8]) -> Result<(), WireError> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err(WireError::Length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        let mut headers = HeaderMap::new();
        headers.insert("if-match", HeaderValue::from_static("\"3\""));
        headers.insert("idempotency-key", HeaderValue::from_static("k"));
        Call {
            method: Method::PUT,
            uri: Uri::from_static("/v1/windows/cap:a%2Fb?redirect=false"),
            headers,
            body: Bytes::from_static(b"{}"),
        }
    }

    fn answer() -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert("etag", HeaderValue::from_static("\"4\""));
        Answer {
            status: StatusCode::CREATED,
            is_unled: true,
            headers,
            body: Bytes::from_static(b"[1]"),
        }
    }

    #[test]
    fn calls_and_answers_arrive_as_they_were_sent() {
        assert_eq!(Call::decode(&call().encode()), Ok(call()));
        assert_eq!(Answer::decode(&answer().encode()), Ok(answer()));
    }

    #[test]
    fn what_is_cut_off_or_longer_is_refused_at_every_byte() {
        let whole = call().encode();
        for end in 0..whole.len() {
            assert!(Call::decode(&whole[..end]).is_err(), "{end}");
        }
        let whole = answer().encode();
        for end in 0..whole.len() {
            assert!(Answer::decode(&whole[..end]).is_err(), "{end}");
        }
        let longer = [answer().encode(), vec![0]].concat();
        assert_eq!(Answer::decode(&longer), Err(WireError::Length));
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = call().encode();
        bytes[0] = 9;
        assert_eq!(Call::decode(&bytes), Err(WireError::Version(9)));
    }
}
