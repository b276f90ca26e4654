//! The bytes between members: bounds are checked first, damage is found, and version 1 stays
//! what it is.

#![expect(clippy::expect_used, reason = "these are tests")]

use fermata_replica::format::FormatError;
use fermata_replica::format::log::{LogId, Vote};
use fermata_replica::format::wire::{
    Answer, FRAME_HEADER_BYTES, HEAD_BYTES_MAX, Header, Hello, Purpose, Request, frame,
};
use serde::de::DeserializeOwned;

const TAIL_BYTES_MAX: u32 = 100;

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, Vec<u8>), FormatError> {
    let (header, rest) = bytes
        .split_first_chunk::<FRAME_HEADER_BYTES>()
        .expect("a header");
    let (header, sum) = Header::parse(header, TAIL_BYTES_MAX)?;
    let (head, tail) = rest.split_at(header.head_bytes as usize);
    Ok((header.decode(sum, head, tail)?, tail.to_vec()))
}

fn append() -> Request {
    Request::Append {
        vote: Vote {
            term: 7,
            committed: true,
            node: 3,
        },
        previous: Some(LogId { term: 6, index: 41 }),
        committed: None,
        entries: vec![(LogId { term: 7, index: 42 }, 5)],
    }
}

fn bytes(message: &Request, tail: &[u8]) -> Vec<u8> {
    frame(message, tail, TAIL_BYTES_MAX).expect("it is small")
}

#[test]
fn what_was_sent_is_what_comes() {
    let sent = bytes(&append(), b"hello");
    assert_eq!(read(&sent), Ok((append(), b"hello".to_vec())));
}

#[test]
fn version_1_is_what_it_was() {
    let hello = Hello {
        cluster: Some(0x0102),
        from: 3,
        to: None,
        purpose: Purpose::Forwards,
    };
    let sent = frame(&hello, &[], 0).expect("it is small");
    let hex: String = sent.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "011e0000000000000078a10a9e010201000000000000000000000000000003000000000000000004000000"
    );
    let sent = bytes(&append(), b"hello");
    let hex: String = sent.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "01430000000500000085632360030000000700000000000000010300000000000000010600000000000000290000000000000000010000000000000007000000000000002a000000000000000500000068656c6c6f"
    );
}

#[test]
fn every_flipped_bit_is_found() {
    let sent = bytes(&append(), b"hello");
    for bit in 0..sent.len() * 8 {
        let mut damaged = sent.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // A length that is still allowed has the reader wait for what does not come.
        let lengths = (8..9 * 8).contains(&bit);
        if !lengths {
            read::<Request>(&damaged).expect_err("it is not what was sent");
        }
    }
}

#[test]
fn lengths_are_checked_before_anything_is_read() {
    let parse = |head: u32, tail: u32| {
        let mut header = [1; FRAME_HEADER_BYTES];
        header[1..5].copy_from_slice(&head.to_le_bytes());
        header[5..9].copy_from_slice(&tail.to_le_bytes());
        Header::parse(&header, TAIL_BYTES_MAX).map(|_| ())
    };
    assert_eq!(parse(HEAD_BYTES_MAX, TAIL_BYTES_MAX), Ok(()));
    for (head, tail) in [(HEAD_BYTES_MAX + 1, 0), (0, TAIL_BYTES_MAX + 1)] {
        let refused = parse(head, tail);
        assert!(
            matches!(refused, Err(FormatError::TooLarge { .. })),
            "{refused:?}"
        );
    }
    let long = frame(&Request::SnapshotPart, &[0; 101], TAIL_BYTES_MAX);
    assert!(
        matches!(long, Err(FormatError::TooLarge { .. })),
        "{long:?}"
    );
}

#[test]
fn another_version_or_message_is_refused() {
    let mut newer = bytes(&Request::Standing, &[]);
    newer[0] = 2;
    let refused = read::<Request>(&newer);
    assert!(
        matches!(refused, Err(FormatError::Version { given: 2, .. })),
        "{refused:?}"
    );
    let answer = Answer::Transferring;
    let answer = frame(&answer, &[], 0).expect("it is small");
    let other = read::<Hello>(&answer);
    assert!(
        matches!(other, Err(FormatError::Damaged { .. })),
        "{other:?}"
    );
    let no_variant = frame(&u32::MAX, &[], 0).expect("it is small");
    let unknown = read::<Request>(&no_variant);
    assert!(
        matches!(unknown, Err(FormatError::Damaged { .. })),
        "{unknown:?}"
    );
}
