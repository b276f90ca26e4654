//! A Rust file as the rules look at it: its code, without what comments and literals say.
//!
//! This is no parser. It knows where comments, strings and characters begin and end, and finds
//! words and matching brackets in what is left; that is enough for rules about words and sizes.

use std::ops::Range;

/// What stands for each byte within a literal: no letter, no bracket, no space.
const LITERAL: u8 = b'~';

pub(super) struct Source {
    /// From the root on, with `/`.
    pub(super) path: String,
    /// The text, byte for byte, with comments as spaces and the insides of literals as `~`.
    pub(super) code: Vec<u8>,
}

pub(super) struct Function {
    pub(super) name: String,
    /// Where `fn` stands.
    pub(super) begin: usize,
    /// After its closing brace.
    pub(super) end: usize,
}

impl Source {
    pub(super) fn new(path: String, text: &str) -> Source {
        Source {
            path,
            code: code_of(text.as_bytes()),
        }
    }

    /// Whether all of it is test code.
    pub(super) fn is_test_file(&self) -> bool {
        self.path
            .split('/')
            .any(|part| part == "tests" || part == "benches")
    }

    /// The number of the line in which a byte stands, from 1.
    pub(super) fn line_of(&self, at: usize) -> usize {
        1 + self.code[..at]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
    }

    /// How many lines between two places have code in them.
    pub(super) fn code_lines(&self, begin: usize, end: usize) -> usize {
        let lines = self.code[begin..end].split(|byte| *byte == b'\n');
        lines.filter(|line| !line.trim_ascii().is_empty()).count()
    }

    /// Where a word stands in the code, whole.
    pub(super) fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let places = self.code.windows(word.len()).enumerate();
        places
            .filter(|(_, found)| *found == word.as_bytes())
            .map(|(at, _)| at)
            .filter(move |at| {
                let before = at.checked_sub(1).map(|before| self.code[before]);
                !before.is_some_and(is_word) && !self.byte(at + word.len()).is_some_and(is_word)
            })
    }

    /// All functions that have a body.
    pub(super) fn functions(&self) -> Vec<Function> {
        let begins = self.words("fn");
        begins.filter_map(|begin| self.function_at(begin)).collect()
    }

    /// Attributes that switch a test off: `#[ignore]`, with or without a reason or a condition.
    pub(super) fn ignored_tests(&self) -> Vec<usize> {
        let attributes = self.attributes();
        let ignores = self.words("ignore");
        ignores
            .filter(|at| attributes.iter().any(|attribute| attribute.contains(at)))
            .collect()
    }

    /// Calls of a function named `sleep` in test code.
    pub(super) fn sleeps_in_tests(&self) -> Vec<usize> {
        let test_modules = self.test_modules();
        self.words("sleep")
            .filter(|at| {
                self.next_code(at + "sleep".len())
                    .is_some_and(|next| self.code[next] == b'(')
            })
            .filter(|at| {
                self.is_test_file() || test_modules.iter().any(|module| module.contains(at))
            })
            .collect()
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.code.get(at).copied()
    }

    /// The first place from `at` on that is not white space.
    fn next_code(&self, at: usize) -> Option<usize> {
        (at..self.code.len()).find(|place| !self.code[*place].is_ascii_whitespace())
    }

    /// After the bracket that closes the one at `open`.
    fn after_closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0usize;
        for at in open..self.code.len() {
            match self.code[at] {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn function_at(&self, begin: usize) -> Option<Function> {
        let name_begin = self.next_code(begin + 2)?;
        let name_end = (name_begin..self.code.len()).find(|at| !is_word(self.code[*at]))?;
        // `fn(u8) -> u8` is a type and has no name.
        if name_begin == name_end {
            return None;
        }
        let mut at = name_end;
        let end = loop {
            match self.byte(at)? {
                b'{' => break self.after_closing(at)?,
                b';' => return None,
                b'(' | b'[' => at = self.after_closing(at)?,
                _ => at += 1,
            }
        };
        let name = String::from_utf8_lossy(&self.code[name_begin..name_end]).into_owned();
        Some(Function { name, begin, end })
    }

    fn attributes(&self) -> Vec<Range<usize>> {
        let begins = (0..self.code.len()).filter(|at| self.code[*at] == b'#');
        begins
            .filter_map(|begin| {
                let open = if self.byte(begin + 1) == Some(b'!') {
                    begin + 2
                } else {
                    begin + 1
                };
                let is_attribute = self.byte(open) == Some(b'[');
                is_attribute
                    .then(|| self.after_closing(open))
                    .flatten()
                    .map(|end| begin..end)
            })
            .collect()
    }

    /// The insides of what follows `#[cfg(test)]` and has braces.
    fn test_modules(&self) -> Vec<Range<usize>> {
        self.attributes()
            .into_iter()
            .filter(|attribute| self.code[attribute.clone()] == *b"#[cfg(test)]")
            .filter_map(|attribute| {
                let braces = (attribute.end..self.code.len())
                    .find(|at| matches!(self.code[*at], b'{' | b';'))?;
                let end = (self.code[braces] == b'{').then(|| self.after_closing(braces))??;
                Some(braces..end)
            })
            .collect()
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// The text with comments and the insides of literals overwritten; line ends stay.
fn code_of(text: &[u8]) -> Vec<u8> {
    let mut code = text.to_vec();
    let mut at = 0;
    while at < text.len() {
        let (end, overwrite) = match &text[at..] {
            [b'/', b'/', ..] => (end_of_line(text, at), b' '),
            [b'/', b'*', ..] => (end_of_block_comment(text, at), b' '),
            [b'"', ..] => (end_of_string(text, at), LITERAL),
            [b'r', ..] if begins_word(text, at) => match end_of_raw_string(text, at) {
                Some(end) => (end, LITERAL),
                None => (at + 1, b'r'),
            },
            [b'\'', ..] => match end_of_character(text, at) {
                Some(end) => (end, LITERAL),
                None => (at + 1, b'\''),
            },
            [other, ..] => (at + 1, *other),
            [] => break,
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = overwrite;
            }
        }
        at = end;
    }
    code
}

/// Whether the letter here begins a word or follows the prefix of a literal (`br"…"`).
fn begins_word(text: &[u8], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|place| text[place]);
    match before(1) {
        Some(b'b' | b'c') => !before(2).is_some_and(is_word),
        Some(byte) => !is_word(byte),
        None => true,
    }
}

fn end_of_line(text: &[u8], at: usize) -> usize {
    (at..text.len())
        .find(|place| text[*place] == b'\n')
        .unwrap_or(text.len())
}

/// Block comments nest.
fn end_of_block_comment(text: &[u8], begin: usize) -> usize {
    let mut depth = 0;
    let mut at = begin;
    while at < text.len() {
        if text[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

fn end_of_string(text: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// `None` where no raw string begins, but a name that has an r.
fn end_of_raw_string(text: &[u8], begin: usize) -> Option<usize> {
    let hashes = text[begin + 1..]
        .iter()
        .take_while(|byte| **byte == b'#')
        .count();
    let open = begin + 1 + hashes;
    if text.get(open) != Some(&b'"') {
        return None;
    }
    let closing = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let found = text[open + 1..]
        .windows(closing.len())
        .position(|part| part == closing);
    Some(found.map_or(text.len(), |found| open + 1 + found + closing.len()))
}

/// `None` where the quote begins a lifetime.
fn end_of_character(text: &[u8], begin: usize) -> Option<usize> {
    let rest = &text[begin + 1..];
    if rest.first() == Some(&b'\\') {
        let closing = rest.iter().skip(2).position(|byte| *byte == b'\'')?;
        return Some(begin + 1 + 2 + closing + 1);
    }
    let character_bytes = match rest.first()? {
        byte if byte.is_ascii() => 1,
        byte => byte.leading_ones() as usize,
    };
    (rest.get(character_bytes) == Some(&b'\'')).then_some(begin + 1 + character_bytes + 1)
}
