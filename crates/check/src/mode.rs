//! What is to be done with findings, as `CROCEVIA_CHECK` and `--check` say it.

/// What is to be done with findings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mode {
    /// Look at the strict rules too.
    pub strict: bool,
    /// End the process by SIGABRT at the first one.
    pub abort: bool,
    /// A program that ends with 0 ends with [`Mode::FAILED`] if there were any.
    pub fail: bool,
}

impl Mode {
    /// Exit status where findings are to make a program fail.
    pub const FAILED: i32 = 99;
    /// The words of which a mode is made.
    pub const WORDS: &'static str = "report, fail, abort, strict";

    /// Words joined by commas; `None` is off. `report`, `on` and `1` ask for nothing more than
    /// findings.
    ///
    /// # Errors
    /// The first word that is none.
    pub fn parse(words: &str) -> Result<Option<Self>, String> {
        let mut mode = Self::default();
        for word in words.split(',').map(str::trim) {
            match word {
                "" | "off" | "0" => return Ok(None),
                "report" | "on" | "1" => {}
                "abort" => mode.abort = true,
                "fail" => mode.fail = true,
                "strict" => mode.strict = true,
                other => return Err(other.to_owned()),
            }
        }
        Ok(Some(mode))
    }
}

#[cfg(test)]
mod tests {
    use super::Mode;

    #[test]
    fn words() {
        let plain = Mode::default();
        for off in ["", "off", "0", " "] {
            assert_eq!(Mode::parse(off), Ok(None), "{off}");
        }
        assert_eq!(Mode::parse("report"), Ok(Some(plain)));
        assert_eq!(Mode::parse("on, strict"), Ok(Some(Mode { strict: true, ..plain })));
        let both = Mode { abort: true, fail: true, ..plain };
        assert_eq!(Mode::parse("fail,abort"), Ok(Some(both)));
        assert_eq!(Mode::parse("fail,loud"), Err("loud".to_owned()));
    }
}
