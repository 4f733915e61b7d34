//! The doctor on recorded hosts (`tests/hosts`): the whole reports, each rule just broken and just
//! not, bytes of any kind, two readings, the document.

mod any_bytes;
mod catalogue;
mod document;
mod host;
mod recording;
mod reports;
mod two_readings;
