//! Is a history of committed transactions serialisable? Every version of a key has one writer, so
//! the history fixes who came before whom: a version's writer before its readers and before the
//! next version's writer, and its readers before the next version's writer. The history is
//! serialisable if and only if these relations have no cycle; then their order is replayed, one
//! transaction at a time, and every number that was read must be the one the replay holds.

use std::collections::{BTreeMap, HashMap};

/// A committed transaction: (key, version, number) read and written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) reads: Vec<(usize, u64, u64)>,
    pub(crate) writes: Vec<(usize, u64, u64)>,
}

/// The state of all keys: version and number.
pub(crate) type State = BTreeMap<usize, (u64, u64)>;

/// What the check went through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) transactions: usize,
    pub(crate) relations: usize,
}

/// Checks a whole history between two states.
///
/// # Errors
/// A sentence about what makes the history impossible in any serial order.
pub(crate) fn serialisable(
    history: &[Record],
    first: &State,
    last: &State,
) -> Result<Verdict, String> {
    let writers = writers(history, first)?;
    let mut readers: HashMap<(usize, u64), Vec<usize>> = HashMap::new();
    for (txn, record) in history.iter().enumerate() {
        for &(key, version, _) in &record.reads {
            readers.entry((key, version)).or_default().push(txn);
        }
    }
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); history.len()];
    let mut relate = |before: usize, later: usize| {
        if before != later {
            after[before].push(later);
        }
    };
    for (&(key, version), &writer) in &writers {
        for &reader in readers.get(&(key, version)).into_iter().flatten() {
            relate(writer, reader);
        }
        for &reader in readers.get(&(key, version - 1)).into_iter().flatten() {
            relate(reader, writer);
        }
        if let Some(&next) = writers.get(&(key, version + 1)) {
            relate(writer, next);
        }
    }
    let order = order(&after)?;
    let end = replay(history, &order, first)?;
    if end != *last {
        let wrong = last.iter().find(|&(key, state)| end.get(key) != Some(state));
        return Err(format!("the store ends with {wrong:?}, the replay does not"));
    }
    let relations = after.iter().map(Vec::len).sum();
    Ok(Verdict { transactions: history.len(), relations })
}

/// Who wrote each version of each key: versions follow each other without gap, each by one writer.
fn writers(history: &[Record], first: &State) -> Result<HashMap<(usize, u64), usize>, String> {
    let mut writers = HashMap::new();
    for (txn, record) in history.iter().enumerate() {
        for &(key, version, _) in &record.writes {
            if let Some(other) = writers.insert((key, version), txn) {
                return Err(format!(
                    "transactions {other} and {txn} both wrote version {version} of key {key}: one \
                     update is lost"
                ));
            }
        }
    }
    for &(key, version) in writers.keys() {
        let start = first.get(&key).ok_or_else(|| format!("key {key} is unknown"))?.0;
        if version != start + 1 && !writers.contains_key(&(key, version - 1)) {
            return Err(format!("version {version} of key {key} has no predecessor"));
        }
    }
    Ok(writers)
}

/// An order that respects all relations.
fn order(after: &[Vec<usize>]) -> Result<Vec<usize>, String> {
    let mut before = vec![0usize; after.len()];
    for &later in after.iter().flatten() {
        before[later] += 1;
    }
    let mut ready: Vec<usize> = (0..after.len()).filter(|&txn| before[txn] == 0).collect();
    let mut order = Vec::with_capacity(after.len());
    while let Some(txn) = ready.pop() {
        order.push(txn);
        for &later in &after[txn] {
            before[later] -= 1;
            if before[later] == 0 {
                ready.push(later);
            }
        }
    }
    if order.len() == after.len() {
        return Ok(order);
    }
    Err(format!("not serialisable, a cycle: {}", cycle(after, &before)))
}

/// A cycle among the transactions that still have a predecessor.
fn cycle(after: &[Vec<usize>], before: &[usize]) -> String {
    let stuck = |&txn: &usize| before[txn] > 0;
    // Every stuck transaction has a stuck predecessor; walking backwards must come round.
    let mut predecessor = HashMap::new();
    for txn in (0..after.len()).filter(stuck) {
        for &later in after[txn].iter().filter(|&later| stuck(later)) {
            predecessor.insert(later, txn);
        }
    }
    let mut walk: Vec<usize> = (0..after.len()).filter(stuck).take(1).collect();
    while let Some(&before) = walk.last().and_then(|txn| predecessor.get(txn)) {
        if let Some(start) = walk.iter().position(|&txn| txn == before) {
            let mut ring: Vec<String> = walk[start..].iter().map(usize::to_string).collect();
            ring.reverse();
            return ring.join(" before ") + " before " + &ring[0];
        }
        walk.push(before);
    }
    String::from("(none found)")
}

/// Executes the history in an order; the state it ends with.
fn replay(history: &[Record], order: &[usize], first: &State) -> Result<State, String> {
    let mut state = first.clone();
    for &txn in order {
        for &(key, version, number) in &history[txn].reads {
            if state.get(&key) != Some(&(version, number)) {
                return Err(format!(
                    "transaction {txn} read version {version} of key {key} as {number}; in serial \
                     order it is {:?}",
                    state.get(&key)
                ));
            }
        }
        for &(key, version, number) in &history[txn].writes {
            state.insert(key, (version, number));
        }
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(reads: &[(usize, u64, u64)], writes: &[(usize, u64, u64)]) -> Record {
        Record { reads: reads.to_vec(), writes: writes.to_vec() }
    }

    fn two(a: (u64, u64), b: (u64, u64)) -> State {
        State::from([(0, a), (1, b)])
    }

    #[test]
    fn one_after_the_other() {
        let history = [
            record(&[(0, 2, 5), (1, 1, 10)], &[(0, 3, 4), (1, 2, 11)]),
            record(&[(0, 1, 10)], &[(0, 2, 5)]),
            record(&[(0, 2, 5), (1, 1, 10)], &[]),
        ];
        let verdict =
            serialisable(&history, &two((1, 10), (1, 10)), &two((3, 4), (2, 11))).unwrap();
        assert_eq!(verdict.transactions, 3);
    }

    #[test]
    fn write_skew_is_a_cycle() {
        let history = [
            record(&[(0, 1, 10), (1, 1, 10)], &[(0, 2, 0)]),
            record(&[(0, 1, 10), (1, 1, 10)], &[(1, 2, 0)]),
        ];
        let error =
            serialisable(&history, &two((1, 10), (1, 10)), &two((2, 0), (2, 0))).unwrap_err();
        assert!(error.contains("cycle"), "{error}");
    }

    #[test]
    fn lost_update() {
        let history = [record(&[(0, 1, 10)], &[(0, 2, 11)]), record(&[(0, 1, 10)], &[(0, 2, 12)])];
        let error =
            serialisable(&history, &two((1, 10), (1, 10)), &two((2, 12), (1, 10))).unwrap_err();
        assert!(error.contains("lost"), "{error}");
    }

    #[test]
    fn a_torn_number_is_found() {
        let history = [record(&[(0, 1, 7)], &[])];
        let state = two((1, 10), (1, 10));
        assert!(serialisable(&history, &state, &state).unwrap_err().contains("as 7"));
    }
}
