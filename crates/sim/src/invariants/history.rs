//! What users and workers recorded, judged by the project's one checker: launches exist, attempts
//! are executed once, never more at once or in a window than allowed, in the queue's order.

use super::All;

pub(super) fn judge(all: &mut All) {
    let report = fermata_audit::check(&all.history);
    let told: Vec<String> = report
        .violations
        .iter()
        .map(|it| format!("{it:?}"))
        .collect();
    for violation in told {
        all.violate(violation);
    }
}
