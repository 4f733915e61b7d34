//! The shapes of files and of tools' output: text to values. Lines that are not understood are
//! passed over; whoever asked for a value that then is missing says so. Nothing here reads.

pub(crate) mod cpus;
pub(crate) mod dcb;
pub(crate) mod ethtool;
pub(crate) mod ip;
pub(crate) mod lldptool;
pub(crate) mod mlnx_qos;
pub(crate) mod proc;

/// The pairs `0:a 1:b …` among the words of a line.
pub(crate) fn pairs(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split_whitespace().filter_map(|word| word.split_once(':'))
}

/// An index below `N` and its value, set in an array.
pub(crate) fn put<T, const N: usize>(array: &mut [T; N], index: &str, value: T) -> Option<()> {
    let place = array.get_mut(index.trim().parse::<usize>().ok()?)?;
    *place = value;
    Some(())
}

/// The number at the beginning of a text, and what follows it.
pub(crate) fn leading_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}
