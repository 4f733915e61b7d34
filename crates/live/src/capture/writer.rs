//! The thread that writes a capture: whole chunks when they are full, and what there is now and
//! then, so that little is lost when the process is killed. A file that takes no more ends on its
//! last whole block; a pipe without a reader gets another beginning when the next one comes.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::place::{Kind, Place};
use super::{Shared, lock};
use crate::sys;

/// How long a packet waits for company.
const LINGER: Duration = Duration::from_millis(50);
/// Added to the thread's niceness: the program and its peers go first.
const NICE: i32 = 10;
/// Where there are fewer processors, the writer takes its time from those that it writes about:
/// two programs that poll, each with a writer.
const ENOUGH_PROCESSORS: usize = 4;
/// There it rests so many times as long as it has worked.
const REST: u64 = 8;
const LONGEST_REST_NS: u64 = 2_000_000;
const STACK: usize = 128 << 10;

/// Starts the thread.
pub(super) fn start(shared: &Arc<Shared>, place: Place) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    sys::spawn("crocevia-pcap", STACK, move || {
        sys::be_nice(NICE);
        let mut target = Target { place, whole: 0 };
        if let Err(e) = run(&shared, &mut target) {
            lock(&shared.buffers).fail();
            eprintln!(
                "crocevia: capture {}: {e}; it ends here, the program goes on",
                target.place.path.display()
            );
        }
    })
}

/// What the thread writes to.
struct Target {
    place: Place,
    /// Bytes of the file that are whole blocks.
    whole: u64,
}

fn run(shared: &Shared, target: &mut Target) -> io::Result<()> {
    let mut late = false;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let rest = if processors < ENOUGH_PROCESSORS { REST } else { 0 };
    if let (Kind::File, Some(file)) = (target.place.kind, &target.place.file) {
        target.whole = file.metadata()?.len();
    }
    loop {
        let mut buffers = lock(&shared.buffers);
        let introduction =
            if buffers.has_introduction() { buffers.introduction(false) } else { Vec::new() };
        let partial = late || buffers.hurry || buffers.stop;
        let chunk = buffers.take(partial);
        if introduction.is_empty() && chunk.is_none() {
            if buffers.stop {
                return Ok(());
            }
            if buffers.has_some() {
                let (guard, waited) = shared
                    .work
                    .wait_timeout(buffers, LINGER)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                drop(guard);
                late = waited.timed_out();
            } else {
                buffers.asleep = true;
                buffers.hurry = false;
                drop(shared.work.wait(buffers));
                late = false;
            }
            continue;
        }
        drop(buffers);
        late = false;
        let chunk = chunk.unwrap_or_default();
        let before = sys::thread_ns();
        target.put(shared, &introduction, &chunk)?;
        let worked = sys::thread_ns().saturating_sub(before);
        let rests = lock(&shared.buffers).give_back(chunk);
        if rests && target.place.kind == Kind::File {
            sys::nap((worked * rest).min(LONGEST_REST_NS));
        }
    }
}

impl Target {
    /// Writes an introduction and a chunk of whole blocks.
    fn put(&mut self, shared: &Shared, introduction: &[u8], chunk: &[u8]) -> io::Result<()> {
        if self.place.file.is_none() {
            self.open(shared)?;
            return self.write(shared, chunk);
        }
        if self.place.reader_has_left() {
            // Another may read already: for that one it begins here. If there is none, the pipe
            // tells.
            let anew = lock(&shared.buffers).introduction(true);
            self.write(shared, &anew)?;
            return self.write(shared, chunk);
        }
        self.write(shared, introduction)?;
        self.write(shared, chunk)
    }

    /// Waits for a reader of the pipe, and begins the capture for it.
    fn open(&mut self, shared: &Shared) -> io::Result<()> {
        loop {
            let file = self.place.open_pipe()?;
            let introduction = lock(&shared.buffers).introduction(true);
            match write_blocks(file, &introduction) {
                Ok(()) => return Ok(()),
                Err((e, _)) if e.kind() == ErrorKind::BrokenPipe => {}
                Err((e, _)) => return Err(e),
            }
        }
    }

    fn write(&mut self, shared: &Shared, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.place.file else { return Ok(()) };
        match write_blocks(file, bytes) {
            Ok(()) => {
                self.whole += bytes.len() as u64;
                Ok(())
            }
            Err((e, _)) if e.kind() == ErrorKind::BrokenPipe && self.place.kind == Kind::Pipe => {
                // What the reader did not want is not for the next one.
                self.place.file = None;
                self.open(shared)
            }
            Err((e, whole)) => {
                if self.place.kind == Kind::File {
                    // Nothing can be done where that fails too.
                    let _ = file.set_len(self.whole + whole as u64);
                }
                Err(e)
            }
        }
    }
}

/// Writes whole blocks; with an error, how many bytes of them are whole in the file.
fn write_blocks(file: &mut File, bytes: &[u8]) -> Result<(), (io::Error, usize)> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return Err((ErrorKind::WriteZero.into(), whole_blocks(bytes, written))),
            Ok(count) => written += count,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err((e, whole_blocks(bytes, written))),
        }
    }
    Ok(())
}

/// How many of the first `len` bytes are whole blocks.
fn whole_blocks(bytes: &[u8], len: usize) -> usize {
    let mut at = 0;
    while let Some([a, b, c, d]) = bytes.get(at + 4..at + 8) {
        let next = at + u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        if next > len || next == at {
            break;
        }
        at = next;
    }
    at
}

#[cfg(test)]
mod tests {
    use wire::pcapng::{Section, put_section};

    use super::*;

    #[test]
    fn a_file_that_is_full_ends_on_a_whole_block() {
        let mut bytes = Vec::new();
        put_section(&mut bytes, &Section::default());
        let one = bytes.len();
        put_section(&mut bytes, &Section { os: "an operating system", ..Section::default() });
        for len in 0..=bytes.len() {
            let whole = if len < one {
                0
            } else if len < bytes.len() {
                one
            } else {
                len
            };
            assert_eq!(whole_blocks(&bytes, len), whole, "{len}");
        }
        assert_eq!(whole_blocks(&[0; 64], 64), 0);
    }
}
