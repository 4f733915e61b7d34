//! What the bench programs share: order statistics, and the one line of JSON that `bench/run.py`
//! reads.
//!
//! The programs are rivals, not parts: nothing of crocevia is linked into `udp_trains` or
//! `udp_pingpong`.

/// The value below which `share` (0..=1) of the sorted samples lie; 0 for no samples.
pub fn quantile(sorted: &[u64], share: f64) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(0)
}

/// Prints `{"name": …, key: value, …}`; the values are figures.
#[expect(clippy::print_stdout, reason = "the output of a bench program")]
pub fn report(name: &str, figures: &[(&str, f64)]) {
    let fields: Vec<String> = figures.iter().map(|(k, v)| format!("\"{k}\": {v:.4}")).collect();
    println!("{{\"name\": \"{name}\", {}}}", fields.join(", "));
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_are_samples() {
        assert_eq!(quantile(&[], 0.5), 0);
        assert_eq!(quantile(&[7], 0.99), 7);
        assert_eq!(quantile(&[1, 2, 3, 4, 5], 0.5), 3);
        assert_eq!(quantile(&[1, 2, 3, 4, 5], 1.0), 5);
    }
}
