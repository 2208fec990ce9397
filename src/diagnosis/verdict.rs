//! Verdict: the cause of a failure as a class, and everything that is said about it, as plain data.
//!
//! Owns the words and their order: where several causes hold, the larger number of bytes comes
//! first. Asked by every judge of this room and by the tools that print it. Never knows where the
//! figures came from.

pub mod message;
pub mod report;
pub mod residue;

use crate::vocab::Verdict;

/// The cause, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Larger than the device or a limit could ever hold.
    ImpossibleSize,
    /// What is live leaves too little, however it is arranged.
    Capacity,
    /// Another process, or memory of this one outside the allocator.
    HiddenConsumer,
    /// Enough is free in all, but in no one place.
    Fragmentation,
    /// Freed, and still used by a stream as far as is known.
    AwaitingFree,
    /// Free, but cached for another stream.
    OtherStream,
    /// Free, but on the other side (size class) of the pool.
    OtherPool,
    /// Free, but in a private pool.
    PrivatePool,
    /// A limit or fraction refused what the device still had.
    Limit,
    /// The bytes alone would have fitted: whole pages or segments, or what rounding adds, do not.
    Granularity,
    /// It runs, but the cache is thrown away again and again.
    Thrash,
    /// Live memory grows from step to step.
    Leak,
    /// The driver had enough: not exhaustion.
    NotExhausted,
    /// What stays is the workspace of a library.
    LibraryWorkspace,
    /// Nothing is certain.
    Unknown,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 15] = [
        Self::ImpossibleSize,
        Self::Capacity,
        Self::HiddenConsumer,
        Self::Fragmentation,
        Self::AwaitingFree,
        Self::OtherStream,
        Self::OtherPool,
        Self::PrivatePool,
        Self::Limit,
        Self::Granularity,
        Self::Thrash,
        Self::Leak,
        Self::NotExhausted,
        Self::LibraryWorkspace,
        Self::Unknown,
    ];

    /// The name used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ImpossibleSize => "impossible-size",
            Self::Capacity => "capacity",
            Self::HiddenConsumer => "hidden-consumer",
            Self::Fragmentation => "fragmentation",
            Self::AwaitingFree => "awaiting-free",
            Self::OtherStream => "other-stream",
            Self::OtherPool => "other-pool",
            Self::PrivatePool => "private-pool",
            Self::Limit => "limit",
            Self::Granularity => "granularity",
            Self::Thrash => "thrash",
            Self::Leak => "leak",
            Self::NotExhausted => "not-exhausted",
            Self::LibraryWorkspace => "library-workspace",
            Self::Unknown => "unknown",
        }
    }
}

impl From<Verdict> for Class {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::ImpossibleSize => Self::ImpossibleSize,
            Verdict::Capacity => Self::Capacity,
            Verdict::Fragmentation => Self::Fragmentation,
            Verdict::AwaitingFree => Self::AwaitingFree,
            Verdict::OtherStream => Self::OtherStream,
            Verdict::OtherPool => Self::OtherPool,
            // A capture goes into a private pool, and is why memory outside of it is withheld.
            Verdict::PrivatePool | Verdict::Capture => Self::PrivatePool,
            Verdict::Limit => Self::Limit,
            Verdict::Granularity => Self::Granularity,
            Verdict::HiddenConsumer => Self::HiddenConsumer,
        }
    }
}

/// One cause that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its class.
    pub class: Class,
    /// How many bytes it accounts for.
    pub bytes: u64,
    /// One sentence with its numbers.
    pub sentence: String,
}

impl Finding {
    /// A cause.
    #[must_use]
    pub fn new(class: Class, bytes: u64, sentence: impl Into<String>) -> Self {
        Self { class, bytes, sentence: sentence.into() }
    }
}

/// A figure of the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name in JSON; one that ends in `_bytes` is a size.
    pub key: &'static str,
    /// The number; `None`: not known.
    pub value: Option<u64>,
    /// What it is.
    pub note: &'static str,
}

impl Figure {
    /// A figure that is known.
    #[must_use]
    pub const fn of(key: &'static str, value: u64, note: &'static str) -> Self {
        Self { key, value: Some(value), note }
    }

    /// A figure that may not be known.
    #[must_use]
    pub const fn maybe(key: &'static str, value: Option<u64>, note: &'static str) -> Self {
        Self { key, value, note }
    }
}

/// What was found: the first finding is the verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The causes, the one that counts first.
    pub findings: Vec<Finding>,
    /// The numbers.
    pub evidence: Vec<Figure>,
    /// What to do next that is no setting proved by replay.
    pub advice: Vec<String>,
    /// What was cut, garbled, inconsistent or assumed.
    pub warnings: Vec<String>,
}

impl Judgement {
    /// The class of the first finding.
    #[must_use]
    pub fn class(&self) -> Class {
        self.findings.first().map_or(Class::Unknown, |finding| finding.class)
    }

    /// The verdict in one sentence.
    #[must_use]
    pub fn verdict(&self) -> &str {
        self.findings.first().map_or("nothing is certain here", |finding| &finding.sentence)
    }

    /// A figure of the evidence by name.
    #[must_use]
    pub fn figure(&self, key: &str) -> Option<u64> {
        self.evidence.iter().find(|figure| figure.key == key)?.value
    }

    /// Says something once.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// The causes by bytes, the largest first; equal ones in the order in which they were found.
    pub fn rank(&mut self) {
        self.findings.sort_by_key(|finding| core::cmp::Reverse(finding.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_cause_comes_first_and_the_first_found_wins_a_tie() {
        let mut judgement = Judgement::default();
        assert_eq!(judgement.class(), Class::Unknown);
        for (class, bytes) in
            [(Class::HiddenConsumer, 5), (Class::Fragmentation, 9), (Class::Limit, 9)]
        {
            judgement.findings.push(Finding::new(class, bytes, class.name()));
        }
        judgement.rank();
        assert_eq!(judgement.class(), Class::Fragmentation);
        assert_eq!(judgement.verdict(), "fragmentation");
        assert_eq!(judgement.findings[2].class, Class::HiddenConsumer);
    }
}
