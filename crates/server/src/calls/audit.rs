//! Who changed what.

use axum::extract::State;
use axum::response::Response;
use fermata_api::audit::AuditRecord;
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::query::{Page, PageQuery};
use http::StatusCode;

use crate::convert::outward;
use crate::edge::Edge;
use crate::input::{self, Query};
use crate::refused::{Refused, json};

pub(crate) async fn list(
    State(edge): State<Edge>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Refused> {
    let items_max = input::page_items(query.limit)?;
    let before = query.after.as_deref().map(number).transpose()?;
    let page = edge.replica.read(|pool| {
        let mut records = pool.audit(before);
        let items: Vec<AuditRecord> = records
            .by_ref()
            .take(items_max)
            .map(|(number, record)| outward::audit_record(number, record))
            .collect();
        let last = items.last().map(|record| record.number.to_string());
        Page {
            after: last.filter(|_| records.next().is_some()),
            items,
        }
    });
    Ok(json(StatusCode::OK, &page))
}

fn number(after: &str) -> Result<u64, Problem> {
    after.parse().map_err(|_| {
        let detail = format!("after is {after:?}; allowed: what the page before answered");
        Problem::new(ErrorCode::InvalidRequest, detail).with_field("after")
    })
}
