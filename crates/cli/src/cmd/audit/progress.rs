//! How far a long audit has come, on a terminal's standard error.

use std::fs::File;
use std::io::{IsTerminal, Read, stderr};
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};

/// Bytes of captures that are read in no time.
const SMALL: u64 = 256 << 20;

/// A bar over the bytes of all files; hidden where nobody looks or nothing takes long.
pub(super) fn bar(files: &[PathBuf]) -> ProgressBar {
    let sizes = files.iter().filter_map(|file| std::fs::metadata(file).ok());
    let total: u64 = sizes.filter(|meta| meta.is_file()).map(|meta| meta.len()).sum();
    if total < SMALL || !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    let form = "  [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} left";
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// A file whose bytes move the bar as they are read.
pub(super) fn read(file: File, bar: &ProgressBar) -> impl Read + Send + 'static {
    bar.wrap_read(file)
}
