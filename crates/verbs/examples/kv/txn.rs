//! Transactions over several keys by optimistic concurrency control, with one-sided operations
//! only.
//!
//! A slot's first word holds its version and its lock. A transaction READs slots (the word, then
//! the value: one connection executes in order), computes, and then commits:
//!
//! 1. *Lock* what it writes: compare-and-swap from the version it has read to the same version,
//!    locked. Another version, or a lock, and it aborts. It never waits, so it never deadlocks.
//! 2. *Validate* what it only read: READ the version words again. A READ of many bytes is not
//!    atomic, but a writer changes the version word before it touches the value and again after, so
//!    a word that is the same before and after says that the value was whole and is still current.
//!    (For what it writes, the lock has said so.)
//! 3. *Install*: WRITE the values, then compare-and-swap the word to the next version, unlocked; in
//!    this order, so nobody sees the version before the value.
//!
//! An abort after step 1 swaps the locked words back: nothing has been written yet. (A client that
//! dies between 1 and 3 leaves its locks behind; a production store would give them leases.)

use std::net::SocketAddr;
use std::time::Duration;

use crocevia::{Access, Context, Cq, Mr, SendData, SendFlags, SendOp, SendRequest, Sge, WcStatus};

use crate::check::Record;
use crate::store::{Link, Result, SLOT, VALUE};

/// The lock bit of a version word; beneath it stand 15 bits of owner and 48 bits of version.
const LOCK: u64 = 1 << 63;
const VERSION: u64 = (1 << 48) - 1;
/// Keys of one transaction.
pub(crate) const MAX_KEYS: usize = 64;

/// Steps left out on purpose, to see the checker find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Broken {
    #[default]
    Nothing,
    /// Writers do not lock.
    Locks,
    /// What was only read is not validated.
    Validation,
}

/// Why a transaction did not commit.
#[derive(Debug)]
pub(crate) enum Abort {
    /// Another transaction was there first; try again.
    Conflict,
    /// The connection or the device failed.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Abort {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A client: its connections to all shards, and scratch memory for its transactions.
pub(crate) struct Client {
    links: Vec<Link>,
    cq: Cq,
    scratch: Mr,
    owner: u64,
    broken: Broken,
}

/// What one operation does to a slot; the scratch place is that of the same index.
#[derive(Clone, Copy)]
enum Step {
    ReadWord,
    ReadValue,
    Swap { compare: u64, swap: u64 },
    WriteValue,
}

impl Client {
    /// Connects to the shards. `owner` (15 bits) tells clients apart in locked words.
    pub(crate) fn new(
        context: &Context,
        shards: &[SocketAddr],
        owner: u64,
        broken: Broken,
    ) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(4 * MAX_KEYS as u32, None)?;
        let links = shards.iter().map(|&shard| Link::new(shard, &pd, &cq));
        let links = links.collect::<Result<Vec<_>>>()?;
        let scratch = pd.alloc(MAX_KEYS * SLOT, Access::empty())?;
        Ok(Self { links, cq, scratch, owner: (owner & 0x7FFF) << 48, broken })
    }

    /// Keys in all shards.
    pub(crate) fn keys(&self) -> usize {
        self.links.iter().map(|link| link.slots).sum()
    }

    /// A transaction.
    pub(crate) fn begin(&mut self) -> Txn<'_> {
        Txn { client: self, reads: Vec::new(), writes: Vec::new() }
    }

    /// Executes steps on slots, all outstanding at once, and waits for all. The n-th uses the n-th
    /// scratch place. Steps on one shard are executed in order.
    fn execute(&self, steps: &[(usize, usize, Step)]) -> Result<()> {
        for (shard, link) in self.links.iter().enumerate() {
            let mine: Vec<(u64, SendOp, [Sge; 1])> = steps
                .iter()
                .filter(|(key, ..)| key % self.links.len() == shard)
                .map(|&(key, place, step)| {
                    let slot = key / self.links.len() * SLOT;
                    let (op, range) = match step {
                        Step::ReadWord => (SendOp::Read(link.at(slot)), 0..8),
                        Step::ReadValue => (SendOp::Read(link.at(slot + 8)), 8..SLOT),
                        Step::WriteValue => (SendOp::Write(link.at(slot + 8)), 8..SLOT),
                        Step::Swap { compare, swap } => {
                            (SendOp::CompareSwap { remote: link.at(slot), compare, swap }, 0..8)
                        }
                    };
                    let base = place * SLOT;
                    (key as u64, op, [self.scratch.sge(base + range.start..base + range.end)])
                })
                .collect();
            link.qp
                .post_send_list(mine.iter().map(|(wr_id, op, sges)| SendRequest {
                    wr_id: *wr_id,
                    op: *op,
                    flags: SendFlags::SIGNALED,
                    data: SendData::Sges(sges),
                    datagram: None,
                }))
                .map_err(|(index, error)| format!("step {index}: {error}"))?;
        }
        for _ in steps {
            let done = self.cq.wait(Some(Duration::from_secs(30))).ok_or("a shard is silent")?;
            if done.status != WcStatus::Success {
                return Err(format!("key {}: {:?}", done.wr_id, done.status).into());
            }
        }
        Ok(())
    }

    /// The word at the start of a scratch place.
    fn word(&self, place: usize) -> u64 {
        self.scratch.region().load_u64(place * SLOT)
    }
}

/// A transaction under way; dropping it before commit leaves no trace.
pub(crate) struct Txn<'a> {
    client: &'a mut Client,
    /// Key, version word, number.
    reads: Vec<(usize, u64, u64)>,
    /// Key, number.
    writes: Vec<(usize, u64)>,
}

impl Txn<'_> {
    /// Reads keys, all READs outstanding at once; their numbers.
    pub(crate) fn read(&mut self, keys: &[usize]) -> std::result::Result<Vec<u64>, Abort> {
        let client = &*self.client;
        let both = |(place, &key)| [(key, place, Step::ReadWord), (key, place, Step::ReadValue)];
        let steps: Vec<_> = keys.iter().enumerate().flat_map(both).collect();
        client.execute(&steps)?;
        for (place, &key) in keys.iter().enumerate() {
            let word = client.word(place);
            if word & LOCK != 0 {
                return Err(Abort::Conflict);
            }
            let number = client.scratch.region().load_u64(place * SLOT + 8);
            self.reads.push((key, word, number));
        }
        // Numbers read here may be torn or old; the commit finds out. A program that could not bear
        // to compute with such a number would validate here as well.
        Ok(self.reads[self.reads.len() - keys.len()..].iter().map(|read| read.2).collect())
    }

    /// Writes a key that has been read; it happens at commit.
    pub(crate) fn write(&mut self, key: usize, number: u64) {
        self.writes.push((key, number));
    }

    /// Commits: the record of what was read and written, for the checker.
    pub(crate) fn commit(self) -> std::result::Result<Record, Abort> {
        let words = self.written_words();
        self.lock(&words)?;
        if let Err(abort) = self.validate() {
            if matches!(abort, Abort::Conflict) {
                self.swap(&words, |word, lock| (lock, word))?;
            }
            return Err(abort);
        }
        self.install(&words)?;
        Ok(Record {
            reads: self.reads.clone(),
            writes: self
                .writes
                .iter()
                .zip(&words)
                .map(|(&(key, number), &(_, word))| (key, word + 1, number))
                .collect(),
        })
    }

    /// Each key to be written with the version word it was read at.
    fn written_words(&self) -> Vec<(usize, u64)> {
        let word = |key| self.reads.iter().find(|read| read.0 == key).map(|read| read.1);
        self.writes
            .iter()
            .map(|&(key, _)| (key, word(key).expect("a key is read before it is written")))
            .collect()
    }

    /// Compare-and-swap on the words of keys; `change` makes compare and swap values of a version
    /// word and its locked form.
    fn swap(&self, words: &[(usize, u64)], change: impl Fn(u64, u64) -> (u64, u64)) -> Result<()> {
        let owner = self.client.owner;
        let steps = words.iter().enumerate().map(|(place, &(key, word))| {
            let (compare, swap) = change(word, LOCK | owner | word & VERSION);
            (key, place, Step::Swap { compare, swap })
        });
        self.client.execute(&steps.collect::<Vec<_>>())
    }

    fn lock(&self, words: &[(usize, u64)]) -> std::result::Result<(), Abort> {
        if self.client.broken == Broken::Locks {
            return Ok(());
        }
        self.swap(words, |word, lock| (word, lock))?;
        // What was in the word before tells who won.
        let won = |place: &usize| self.client.word(*place) == words[*place].1;
        let held: Vec<_> = (0..words.len()).filter(won).map(|place| words[place]).collect();
        if held.len() == words.len() {
            return Ok(());
        }
        self.swap(&held, |word, lock| (lock, word))?;
        Err(Abort::Conflict)
    }

    fn validate(&self) -> std::result::Result<(), Abort> {
        if self.client.broken == Broken::Validation {
            return Ok(());
        }
        let only_read: Vec<_> = self
            .reads
            .iter()
            .filter(|(key, ..)| self.writes.iter().all(|write| write.0 != *key))
            .collect();
        let steps: Vec<_> = only_read
            .iter()
            .enumerate()
            .map(|(place, (key, ..))| (*key, place, Step::ReadWord))
            .collect();
        self.client.execute(&steps)?;
        let unchanged =
            |(place, read): (usize, &&(usize, u64, u64))| self.client.word(place) == read.1;
        if only_read.iter().enumerate().all(unchanged) { Ok(()) } else { Err(Abort::Conflict) }
    }

    fn install(&self, words: &[(usize, u64)]) -> Result<()> {
        let client = &*self.client;
        let mut steps = Vec::new();
        for (place, (&(key, number), &(_, word))) in self.writes.iter().zip(words).enumerate() {
            for offset in (0..VALUE).step_by(8) {
                client.scratch.region().store_u64(place * SLOT + 8 + offset, number);
            }
            let locked = LOCK | client.owner | word & VERSION;
            let compare = if client.broken == Broken::Locks { word } else { locked };
            steps.push((key, place, Step::WriteValue));
            steps.push((key, place, Step::Swap { compare, swap: word + 1 }));
        }
        client.execute(&steps)
    }
}
