//! The id of a job: as given, from an idempotency key, or a new one.
//!
//! An id from a key is the same on every node and after every restart, so a retry finds its job
//! wherever it arrives (S40). It is a hash: keys may hold what an id may not, and nobody can read
//! a key back from it.

use sha2::{Digest, Sha256};

/// Bytes of the hash that make up an id: 128 bits do not collide by chance.
const HASH_BYTES: usize = 16;

/// The id of a job of a request: its own if it names one, else that of the request's key, else a
/// new one. `ordinal` counts the jobs of a batch that have no id of their own, from 0. The first
/// has the id that a single launch under this key has, so that one key is never two requests.
pub(crate) fn choose(own: Option<&str>, key: Option<&str>, ordinal: usize) -> String {
    match (own, key) {
        (Some(own), _) => own.to_owned(),
        (None, Some(key)) => from_key(key, ordinal),
        (None, None) => uuid::Uuid::now_v7().to_string(),
    }
}

fn from_key(key: &str, ordinal: usize) -> String {
    let mut hash = Sha256::new();
    // Keys hold no control characters, so no key and ordinal are another key's.
    hash.update(key.as_bytes());
    if ordinal > 0 {
        hash.update(format!("\n{ordinal}").as_bytes());
    }
    let digits: String = hash.finalize()[..HASH_BYTES]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("key-{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_from_keys_stay_what_they_were() {
        // Frozen: another id would make a second job of a retry.
        let cases = [
            ("order 7", 0, "key-0fc89f8ae19394b48debd6353bb9ad33"),
            ("order 7", 1, "key-61694374cbcece621447b3c0663ee2b0"),
        ];
        for (key, ordinal, id) in cases {
            assert_eq!(choose(None, Some(key), ordinal), id);
        }
    }

    #[test]
    fn an_own_id_wins_and_each_job_has_its_own() {
        assert_eq!(choose(Some("own"), Some("key"), 1), "own");
        let ids: std::collections::BTreeSet<String> = [
            choose(None, Some("k"), 0),
            choose(None, Some("k"), 1),
            choose(None, Some("k"), 2),
            choose(None, Some("k\u{31}"), 0),
            choose(None, None, 0),
            choose(None, None, 0),
        ]
        .into();
        assert_eq!(ids.len(), 6);
        for id in ids {
            assert!(fermata_pool::id::check_id("id", &id).is_ok(), "{id}");
        }
    }
}
