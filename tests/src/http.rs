//! Raw HTTP, for what a client hides: statuses, headers, bodies that are none.

use std::time::Duration;

use bytes::Bytes;
use fermata_api::headers;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::timeout;

/// Sends requests to exactly the node that is named.
#[derive(Clone, Debug)]
pub struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
}

/// An answer, whole.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null where it is no JSON.
    pub json: Value,
}

/// A request to be shaped and sent.
#[derive(Debug)]
pub struct Asking<'a> {
    http: &'a Http,
    request: Request<Full<Bytes>>,
    deadline: Duration,
}

impl Default for Http {
    fn default() -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { client }
    }
}

impl Http {
    /// A request without a body.
    ///
    /// # Panics
    /// The URL is none.
    #[must_use]
    pub fn ask(&self, method: Method, url: &str) -> Asking<'_> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = method;
        *request.uri_mut() = url.parse().expect("a URL of a test");
        Asking {
            http: self,
            request,
            deadline: crate::DEADLINE,
        }
    }

    /// `GET` of what is there.
    pub async fn get(&self, url: &str) -> Reply {
        self.ask(Method::GET, url).send().await
    }

    /// `POST` of a JSON value.
    pub async fn post(&self, url: &str, body: &Value) -> Reply {
        self.ask(Method::POST, url).json(body).send().await
    }

    /// `PUT` of a JSON value.
    pub async fn put(&self, url: &str, body: &Value) -> Reply {
        self.ask(Method::PUT, url).json(body).send().await
    }
}

impl Asking<'_> {
    /// With a JSON body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.bytes(body.to_string().into_bytes())
    }

    /// With a body that says that it is JSON.
    #[must_use]
    pub fn bytes(mut self, body: Vec<u8>) -> Self {
        *self.request.body_mut() = Full::from(body);
        self.header(header::CONTENT_TYPE.as_str(), headers::JSON)
    }

    /// With a header.
    ///
    /// # Panics
    /// It is none.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name: header::HeaderName = name.parse().expect("a header of a test");
        let value = value.parse().expect("a header of a test");
        self.request.headers_mut().insert(name, value);
        self
    }

    /// With a deadline, told to the node too.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self.header(headers::TIMEOUT_MS, &deadline.as_millis().to_string())
    }

    /// Sends it.
    ///
    /// # Panics
    /// No answer, or none within the deadline.
    pub async fn send(self) -> Reply {
        let what = format!("{} {}", self.request.method(), self.request.uri());
        let reply = timeout(self.deadline + Duration::from_secs(1), self.try_send()).await;
        match reply {
            Ok(Some(reply)) => reply,
            Ok(None) => panic!("{what}: the connection broke"),
            Err(_) => panic!("{what}: no answer within its deadline and a second"),
        }
    }

    /// Sends it; nothing where the connection broke or there is none.
    pub async fn try_send(self) -> Option<Reply> {
        let response = self.http.client.request(self.request).await.ok()?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some(Reply {
            status: head.status,
            headers: head.headers,
            json: serde_json::from_slice(&body).unwrap_or(Value::Null),
        })
    }
}

impl Reply {
    /// The code of a problem; empty where it is none.
    #[must_use]
    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or_default()
    }

    /// A header; empty where it is not there.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }
}
