//! Why a job waits, as it is answered.

use fermata_api::why::{GateKind, GateView, ServerRoom, WhyView};
use fermata_pool::Pool;
use fermata_pool::outcome::Standing;
use fermata_pool::scope::Gate;
use fermata_pool::time::{Calendar, Instant};
use fermata_pool::why::{self, What, Why};

use super::outward::{mode, standing, time};
use super::rates::window;
use super::refusals::reason;

/// Why the job of this id stands as it does at an instant, or would.
pub(crate) fn why(pool: &Pool, id: &str, why: &Why<'_>, seen: (Instant, Calendar<'_>)) -> WhyView {
    let mut shown = WhyView {
        id: id.to_owned(),
        state: standing(&why.standing),
        reason: None,
        code: None,
        attempt: None,
        server: None,
        pool: why.pool.clone(),
        position: why.position.map(|place| place.saturating_sub(1)),
        behind: why.behind.map(str::to_owned),
        gates: why
            .gates
            .iter()
            .map(|view| {
                gate(
                    pool,
                    view,
                    is_waited_for(pool, why.waits_for, &view.what),
                    seen,
                )
            })
            .collect(),
        earliest_at: why.earliest.map(time),
        earliest_is_exact: why.earliest.map(|_| why.is_exact),
        aborts_at: why.aborts.map(|(at, _)| time(at)),
    };
    match &why.standing {
        Standing::Delayed | Standing::Queued => {
            shown.reason = why.aborts.map(|(_, why)| reason(why));
        }
        Standing::Starting { attempt, server } | Standing::Active { attempt, server } => {
            shown.attempt = Some(*attempt);
            shown.server = server.as_deref().map(str::to_owned);
        }
        Standing::Complete { code } => shown.code = Some(*code),
        Standing::Aborted { reason: why } => shown.reason = Some(reason(*why)),
    }
    shown
}

fn is_waited_for(pool: &Pool, waits_for: Option<Gate>, what: &What<'_>) -> bool {
    match (waits_for, what) {
        (Some(Gate::Slot), What::Slot { .. }) | (Some(Gate::Server), What::Server { .. }) => true,
        (Some(Gate::Rate(number)), What::Rate { name, .. }) => {
            pool.scope_name(number) == Some(name)
        }
        // One that is due waits for nothing but its turn.
        (Some(Gate::Due | Gate::Slot | Gate::Server | Gate::Rate(_)) | None, _) => false,
    }
}

fn gate(
    pool: &Pool,
    view: &why::GateView<'_>,
    waited_for: bool,
    seen: (Instant, Calendar<'_>),
) -> GateView {
    GateView {
        what: match &view.what {
            What::Slot {
                running,
                amount,
                holders,
                held_until,
            } => GateKind::Slot {
                running: (*running).into(),
                amount: amount.map(u64::from),
                holders: holders.iter().map(ToString::to_string).collect(),
                held_until: held_until.map(time),
            },
            What::Rate {
                name,
                mode: shut,
                window: open,
                max,
                held_until,
                ahead,
            } => GateKind::Rate {
                id: name.clone(),
                mode: shut.map(mode),
                max: (*max).into(),
                window: open
                    .as_deref()
                    .map(|view| Box::new(window(pool, view, seen))),
                held_until: held_until.map(time),
                ahead: ahead.iter().map(ToString::to_string).collect(),
            },
            What::Server { weight, servers } => GateKind::Server {
                weight: (*weight).into(),
                servers: servers.iter().map(room).collect(),
            },
        },
        open: view.is_open,
        waited_for,
        opens_at: view.opens_at.map(time),
    }
}

fn room(server: &why::ServerRoom<'_>) -> ServerRoom {
    ServerRoom {
        id: server.id.to_owned(),
        online: server.online,
        enabled: server.enabled,
        room: server.room.into(),
        missing: server.missing.into(),
    }
}
