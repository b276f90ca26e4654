//! A zone as the list of its offsets.
//!
//! The list reaches from the first change that is known to the year 2500. The Gregorian
//! calendar repeats itself, weekdays included, every 400 years, and the changes that zone
//! files still name one by one end long before 2100; so what a zone does from 2100 to 2500 it
//! does for ever, and a later instant is looked up a whole number of cycles earlier.

/// The length of the calendar's cycle: 400 years, 146,097 days, 20,871 weeks.
const CYCLE_S: i64 = 146_097 * 86_400;

/// 2500-01-01T00:00:00Z: from here on instants are looked up in the cycle before.
const CYCLE_END_S: i64 = 16_725_225_600;

/// Lists go on for a year more, so that what follows the last instant looked up is there.
pub(crate) const LIST_END_S: i64 = CYCLE_END_S + 366 * 86_400;

/// Seconds of Unix time during which a zone keeps one offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// When it begins; it ends where the next begins.
    pub(crate) start_s: i64,
    /// Local time minus UTC.
    pub(crate) offset_s: i64,
    index: usize,
}

/// The spans of a zone, in order, without gaps.
///
/// Invariant: the offset of each is another than that of the one before.
pub(crate) struct Offsets {
    /// The offset before the first change.
    first_offset_s: i64,
    changes: Vec<Change>,
}

#[derive(Clone, Copy)]
struct Change {
    at_s: i64,
    offset_s: i64,
}

impl Offsets {
    pub(crate) fn new(first_offset_s: i64) -> Offsets {
        Offsets {
            first_offset_s,
            changes: Vec::new(),
        }
    }

    /// Appends a change; one that changes no offset (but a name, or what counts as summer time)
    /// is left out. Changes are appended in order.
    pub(crate) fn push(&mut self, at_s: i64, offset_s: i64) {
        let last = self.changes.last();
        debug_assert!(last.is_none_or(|last| last.at_s < at_s), "changes in order");
        if last.map_or(self.first_offset_s, |last| last.offset_s) != offset_s {
            self.changes.push(Change { at_s, offset_s });
        }
    }

    /// Where in the list to look an instant up, and how far that is from it.
    pub(crate) fn within_list(&self, at_s: i64) -> (i64, i64) {
        if at_s < CYCLE_END_S {
            return (at_s, 0);
        }
        let cycles_s = ((at_s - CYCLE_END_S) / CYCLE_S + 1) * CYCLE_S;
        (at_s - cycles_s, cycles_s)
    }

    pub(crate) fn span_at(&self, at_s: i64) -> Span {
        self.span(self.changes.partition_point(|change| change.at_s <= at_s))
    }

    pub(crate) fn span_after(&self, span: &Span) -> Option<Span> {
        (span.index < self.changes.len()).then(|| self.span(span.index + 1))
    }

    /// Span 0 is before the first change; span n begins with change n - 1.
    fn span(&self, index: usize) -> Span {
        match index.checked_sub(1).map(|change| self.changes[change]) {
            Some(Change { at_s, offset_s }) => Span {
                start_s: at_s,
                offset_s,
                index,
            },
            None => Span {
                start_s: i64::MIN,
                offset_s: self.first_offset_s,
                index,
            },
        }
    }
}
