//! Query strings that many calls share, and pages of lists.

use serde::{Deserialize, Serialize};

use crate::whole;

/// The query of `GET /v1/events` and of other lists without a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// Most items of the page, 1 to [`crate::bounds::PAGE_ITEMS_MAX`].
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional_text::<_, _, 1, { crate::bounds::PAGE_ITEMS_MAX as u64 }>"
    )]
    pub limit: Option<u32>,
    /// The `after` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Whose copy is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
    /// Whether a follower answers with a 307 to the leader instead of forwarding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<bool>,
}

/// The query of calls that take no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallQuery {
    /// Whose copy is read; reads only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
    /// Whether a follower answers with a 307 to the leader instead of forwarding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<bool>,
}

/// Whose copy a read sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// The leader's, confirmed by a majority.
    #[default]
    Linearizable,
    /// The node's own, however old; the answer says how old.
    Stale,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The items, in the list's order.
    pub items: Vec<T>,
    /// The place after the last item: `after` of the next page's request. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
