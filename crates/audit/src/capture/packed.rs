//! Captures packed by gzip or zstd, unpacked as they are read.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::{Damage, Reader, read_up_to};

/// The most bytes that a zstd frame may want to be remembered (`zstd --long=27`, `zstd -22`).
const MAX_WINDOW: u64 = 128 << 20;

/// Bytes of a capture, unpacked.
pub type Input = Box<dyn Read + Send>;

/// Begins to read file number `file`, packed or not.
///
/// # Errors
/// What is no capture, and what cannot be read at all.
pub fn open(mut input: impl Read + Send + 'static, file: u16) -> Result<Reader<Input>, Damage> {
    let mut magic = [0; 4];
    let got = read_up_to(&mut input, &mut magic, 0)?;
    let whole = Cursor::new(magic).take(got as u64).chain(input);
    let (packing, input): (_, Input) = match magic {
        [0x1F, 0x8B, ..] => ("gzip of ", Box::new(MultiGzDecoder::new(BufReader::new(whole)))),
        [0x28, 0xB5, 0x2F, 0xFD] => ("zstd of ", Box::new(Zstd::new(whole))),
        _ => ("", Box::new(whole)),
    };
    let mut reader = Reader::open(input, file)?;
    reader.packing = packing;
    Ok(reader)
}

/// Unpacks frames of zstd, one behind the other.
struct Zstd<R> {
    source: BufReader<R>,
    decoder: FrameDecoder,
    begun: bool,
}

impl<R: Read> Zstd<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Self { source: BufReader::with_capacity(64 << 10, source), decoder, begun: false }
    }

    /// Begins the next frame; whether there is one.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.source.by_ref().take(u64::from(length));
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.begun {
                let got = self.decoder.read(out)?;
                if got > 0 || out.is_empty() {
                    return Ok(got);
                }
            }
            if !self.begun || self.decoder.is_finished() {
                self.begun = self.next_frame()?;
                if !self.begun {
                    return Ok(0);
                }
            }
            let step = BlockDecodingStrategy::UptoBlocks(1);
            self.decoder
                .decode_blocks(&mut self.source, step)
                .map_err(|error| io::Error::other(error.to_string()))?;
        }
    }
}

/// What a file is whose first bytes are these, where it is known and not read here.
pub(super) fn foreign(head: &[u8]) -> Option<&'static str> {
    const KNOWN: [(&[u8], &str); 9] = [
        (b"\xFD7zX", "a file packed by xz; unpack it (xz -dc FILE | crocevia audit -)"),
        (b"BZh", "a file packed by bzip2; unpack it (bzip2 -dc FILE | crocevia audit -)"),
        (b"\x04\x22\x4D\x18", "a file packed by lz4; unpack it (lz4 -dc FILE | crocevia audit -)"),
        (b"PK\x03\x04", "a zip archive; unpack it"),
        (b"snoo", "a capture of snoop; convert it (editcap -F pcapng FILE NEW)"),
        (b"GMBU", "a capture of Network Monitor; convert it (editcap -F pcapng FILE NEW)"),
        (b"\x7FELF", "a program"),
        (b"perf", "a record of perf"),
        (b"{", "JSON"),
    ];
    KNOWN.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| *name)
}
