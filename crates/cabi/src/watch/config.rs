//! What `CROCEVIA_CHECK` and its kin say: `report` (or `on`), `fail`, `abort`, `strict`, joined by
//! commas; where findings go besides standard error.

use std::ffi::OsString;
use std::sync::OnceLock;

/// What is to be done with findings.
pub(super) struct Config {
    /// End the process by SIGABRT at the first one.
    pub(super) abort: bool,
    /// End with [`super::report::FAILED`] if there were any.
    pub(super) fail: bool,
    /// Look at the strict rules too.
    pub(super) strict: bool,
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
    let (file, json) = (path("CROCEVIA_CHECK_FILE"), path("CROCEVIA_CHECK_JSON"));
    let mut config = Config { abort: false, fail: false, strict: false, file, json };
    for word in words.to_string_lossy().split(',').map(str::trim) {
        match word {
            "" | "off" | "0" => return None,
            "report" | "on" | "1" => {}
            "abort" => config.abort = true,
            "fail" => config.fail = true,
            "strict" => config.strict = true,
            other => super::report::complain(&format!(
                "CROCEVIA_CHECK={other}: expected report, fail, abort or strict; taken as report"
            )),
        }
    }
    Some(config)
}
