//! What a call brings: its path, query, headers and body, or the problem that names the fault.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use fermata_api::bounds::{PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX};
use fermata_api::decode::decode;
use fermata_api::headers;
use fermata_api::problem::{ErrorCode, Problem};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Uri};
use serde::de::DeserializeOwned;

use crate::convert::inward;
use crate::refused::Refused;

/// The id in the path, percent-decoded and checked (S11).
pub(crate) struct Id(pub(crate) Box<str>);

/// The name of a pool or bucket in the path, percent-decoded and checked.
pub(crate) struct Scope(pub(crate) Box<str>);

/// The query string.
pub(crate) struct Query<T>(pub(crate) T);

/// The body, which must be there.
pub(crate) struct Json<T>(pub(crate) T);

/// The body; an empty one stands for every default.
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let segment = segment(parts, state).await?;
        Ok(Self(inward::id("id", &segment)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Scope {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let segment = segment(parts, state).await?;
        Ok(Self(inward::scope("id", &segment)?))
    }
}

async fn segment<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<String, Refused> {
    let Path(segment) = Path::<String>::from_request_parts(parts, state)
        .await
        .map_err(|rejection| {
            let detail = format!("the id in the path: {}", rejection.body_text());
            Problem::new(ErrorCode::InvalidRequest, detail).with_field("id")
        })?;
    Ok(segment)
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        Ok(query(&parts.uri).map(Self)?)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let body = body(request, state).await?;
        Ok(decode(&body).map(Self)?)
    }
}

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let said = is_json(request.headers());
        let bytes = bytes(request, state).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        said?;
        Ok(decode(&bytes).map(Self)?)
    }
}

/// The bytes of a body that is said to be JSON.
pub(crate) async fn body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Refused> {
    is_json(request.headers())?;
    bytes(request, state).await
}

async fn bytes<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Refused> {
    let bytes = Bytes::from_request(request, state).await;
    bytes.map_err(|rejection| Problem::new(ErrorCode::InvalidRequest, rejection.body_text()).into())
}

fn is_json(given: &HeaderMap) -> Result<(), Problem> {
    let given = given.get(CONTENT_TYPE);
    let given = given.map_or("", |value| value.to_str().unwrap_or(""));
    // What follows a semicolon, such as the character set, is UTF-8 in any case.
    let essence = given.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case(headers::JSON) {
        return Ok(());
    }
    let detail = format!("the body's type is {given:?}; allowed: {:?}", headers::JSON);
    let problem = Problem::new(ErrorCode::UnsupportedMediaType, detail);
    Err(problem.with_field(CONTENT_TYPE.as_str()))
}

/// Reads a query string.
pub(crate) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let pairs = form_urlencoded::parse(uri.query().unwrap_or("").as_bytes());
    let deserializer = serde_urlencoded::Deserializer::new(pairs);
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        let detail = error.into_inner().to_string();
        let unknown = detail
            .strip_prefix("unknown field `")
            .and_then(|rest| rest.split('`').next());
        let code = match unknown {
            Some(_) => ErrorCode::UnknownField,
            None => ErrorCode::InvalidRequest,
        };
        let field = unknown.map_or(path, str::to_owned);
        Problem::new(code, format!("in the query: {detail}")).with_field(field)
    })
}

/// The revision that a definition must still have: of `If-Match`, or of the body; 0, which is that of
/// what is absent, where `If-None-Match` says so.
pub(crate) fn revision(headers: &HeaderMap, body: Option<u64>) -> Result<Option<u64>, Problem> {
    if let Some(given) = headers.get(headers::IF_NONE_MATCH) {
        if given == "*" && !headers.contains_key(headers::IF_MATCH) && body.is_none() {
            return Ok(Some(0));
        }
        let detail = format!("If-None-Match is {given:?}; allowed: *, without another revision");
        let problem = Problem::new(ErrorCode::InvalidRequest, detail);
        return Err(problem.with_field(headers::IF_NONE_MATCH));
    }
    let Some(given) = headers.get(headers::IF_MATCH) else {
        return Ok(body);
    };
    let text = given.to_str().unwrap_or("");
    let digits = text
        .trim()
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let Some(revision) = digits.and_then(|digits| digits.parse().ok()) else {
        let detail = format!("If-Match is {given:?}; allowed: one revision in quotes, as in \"3\"");
        return Err(Problem::new(ErrorCode::InvalidRequest, detail).with_field(headers::IF_MATCH));
    };
    match body {
        Some(other) if other != revision => {
            let detail = format!("If-Match says revision {revision} and the body {other}");
            Err(Problem::new(ErrorCode::InvalidRequest, detail).with_field("revision"))
        }
        _ => Ok(Some(revision)),
    }
}

/// The idempotency key of a launch, if it has one.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(given) = headers.get(headers::IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let text = std::str::from_utf8(given.as_bytes()).map_err(|_| {
        Problem::new(ErrorCode::InvalidRequest, "the key is no UTF-8")
            .with_field(headers::IDEMPOTENCY_KEY)
    })?;
    inward::key(headers::IDEMPOTENCY_KEY, text).map(Some)
}

/// How many items a page has.
pub(crate) fn page_items(limit: Option<u32>) -> Result<usize, Problem> {
    let limit = limit.unwrap_or(PAGE_ITEMS_DEFAULT);
    if (1..=PAGE_ITEMS_MAX).contains(&limit) {
        return Ok(limit as usize);
    }
    let detail = format!("limit is {limit}; allowed: 1 to {PAGE_ITEMS_MAX}");
    Err(Problem::new(ErrorCode::InvalidRequest, detail).with_field("limit"))
}

/// The number of a node in the path.
pub(crate) struct PathNode(pub(crate) u64);

impl<S: Send + Sync> FromRequestParts<S> for PathNode {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let segment = segment(parts, state).await?;
        let node = segment.parse().map_err(|_| {
            let detail = format!("id is {segment:?}; allowed: the number of a node");
            Problem::new(ErrorCode::InvalidRequest, detail).with_field("id")
        })?;
        Ok(Self(node))
    }
}
