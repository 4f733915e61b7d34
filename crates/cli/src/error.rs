//! How a command ends when it does not end well: the exit code and the sentence for the person.
//! Sentences say what was expected, what was found and what to do.

use std::fmt;
use std::io;

/// Exit code for a failure of the work itself.
const EXIT_FAILURE: u8 = 1;
/// Exit code for arguments that cannot be what was meant.
const EXIT_USAGE: u8 = 2;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments are wrong; exit code 2.
    Usage(String),
    /// The work failed; exit code 1.
    Failed(String),
    /// The work failed with an exit code of its own.
    Exit(u8, String),
    /// Nothing was asked for; this text goes to standard error as it is. Exit code 2.
    Help(String),
    /// The work was to look for something, and it was found: all is said. Exit code 1.
    Findings,
    /// Whoever read our output has gone; nothing to say, and nobody to say it to.
    BrokenPipe,
}

/// The result of a command's parts.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// The work failed.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// The arguments are wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// The same failure of a command whose exit code 1 says that something was found.
    pub(crate) fn not_a_finding(self) -> Self {
        match self {
            Self::Failed(message) => Self::Exit(EXIT_USAGE, message),
            other => other,
        }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Help(_) => EXIT_USAGE,
            Self::Failed(_) | Self::Findings => EXIT_FAILURE,
            Self::Exit(code, _) => *code,
            Self::BrokenPipe => 0,
        }
    }

    /// The same failure, its sentence preceded by where it happened.
    pub(crate) fn within(self, place: &str) -> Self {
        let prefix = |message: String| format!("{place}: {message}");
        match self {
            Self::Usage(message) => Self::Usage(prefix(message)),
            Self::Failed(message) => Self::Failed(prefix(message)),
            Self::Exit(code, message) => Self::Exit(code, prefix(message)),
            Self::Help(text) => Self::Help(text),
            Self::Findings => Self::Findings,
            Self::BrokenPipe => Self::BrokenPipe,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message)
            | Self::Failed(message)
            | Self::Exit(_, message)
            | Self::Help(message) => f.write_str(message),
            Self::Findings => f.write_str("something was found"),
            Self::BrokenPipe => f.write_str("the reader of the output has gone"),
        }
    }
}

impl From<crocevia::Error> for Failure {
    fn from(error: crocevia::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Errors of writing to standard output. Other descriptors convert theirs where they happen.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Failed(format!("standard output could not be written: {error}")),
        }
    }
}
