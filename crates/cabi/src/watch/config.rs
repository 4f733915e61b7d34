//! What `CROCEVIA_CHECK` and its kin say, read once.

use std::ffi::OsString;
use std::sync::OnceLock;

use check::Mode;

/// What is to be done with findings, and where they go.
pub(super) struct Config {
    pub(super) mode: Mode,
    /// Text goes to this file instead of standard error.
    pub(super) file: Option<OsString>,
    /// JSON goes to this file as well.
    pub(super) json: Option<OsString>,
}

/// `None` if calls are not checked.
#[inline]
pub(super) fn get() -> Option<&'static Config> {
    static CONFIG: OnceLock<Option<Config>> = OnceLock::new();
    CONFIG.get_or_init(read).as_ref()
}

#[cold]
fn read() -> Option<Config> {
    let words = std::env::var_os("CROCEVIA_CHECK")?;
    let path = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let mode = Mode::parse(&words.to_string_lossy()).unwrap_or_else(|word| {
        let known = Mode::WORDS;
        super::report::complain(&format!(
            "CROCEVIA_CHECK={word}: expected off or some of {known}; taken as report"
        ));
        Some(Mode::default())
    })?;
    Some(Config { mode, file: path("CROCEVIA_CHECK_FILE"), json: path("CROCEVIA_CHECK_JSON") })
}
