//! After everything was mended, every job that was launched comes to its end: whoever was lost is
//! found although leadership moved (F09), and nothing stays shut after clocks have jumped (F18).

use super::All;

pub(super) fn judge(all: &mut All) {
    let open: Vec<&String> = all
        .launched
        .iter()
        .filter(|(job, is_answered)| **is_answered && !all.ended.contains(*job))
        .map(|(job, _)| job)
        .collect();
    if let Some(first) = open.first() {
        let told = format!("{} jobs have not ended, {first} among them", open.len());
        all.violate(told);
    }
}
