//! Captures of real traffic between two NICs, read back by an independent reader (`pcap-parser`):
//! what is in the file, which file it is, and that no file and no pipe holds up the NIC.
#![allow(unsafe_code)] // fork, waitpid, mkfifo.

mod support;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::{ErrorKind, SendOp};
use live::Options;
use pcap_parser::pcapng::{Block, parse_block_le};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{OptionCode, PcapNGOption};
use support::{Events, PATIENCE, Side, bytes, own, pattern};

/// A fork while another test captures would leave the child with that test's locks held.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("crocevia-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn capturing(file: &Path) -> Options {
    Options { pcap: Some(file.to_owned()), ..Options::default() }
}

/// Two connected sides that capture.
fn pair(a: Ipv4Addr, b: Ipv4Addr, options: &Options) -> (Side, Side) {
    let (one, two) = (Side::open_with(a, options, 65536), Side::open_with(b, options, 65536));
    one.connect(&two, 18);
    two.connect(&one, 18);
    (one, two)
}

/// Writes so many bytes and waits for the completion.
fn write(from: &Side, to: &Side, len: usize) {
    from.region.write(0, &pattern(len, len as u8));
    from.post(1, SendOp::Write(to.remote(0)), from.sge(0, len));
    from.success(1);
    assert_eq!(bytes(&to.region, 0, len), pattern(len, len as u8));
}

/// A packet as the reader has it.
struct Packet {
    interface: u32,
    flags: u32,
    original: u32,
    frame: Vec<u8>,
}

/// What is in a file.
#[derive(Default)]
struct Read {
    sections: usize,
    interfaces: usize,
    /// Seen, left out, kept, the last of each interface.
    statistics: BTreeMap<(usize, u32), [u64; 3]>,
    packets: Vec<Packet>,
}

fn number(options: &[PcapNGOption<'_>], code: OptionCode) -> u64 {
    let found = options.iter().find(|o| o.code == code).expect("the option");
    let bytes = &found.value()[..usize::from(found.len)];
    bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn read(file: &Path) -> Read {
    let bytes = std::fs::read(file).unwrap();
    let (mut rest, mut read) = (&bytes[..], Read::default());
    while !rest.is_empty() {
        let (behind, block) = parse_block_le(rest).expect("a block");
        rest = behind;
        match block {
            Block::SectionHeader(_) => read.sections += 1,
            Block::InterfaceDescription(_) => read.interfaces += 1,
            Block::InterfaceStatistics(s) => {
                let codes = [OptionCode::IsbIfRecv, OptionCode::IsbIfDrop, OptionCode::IsbUsrDeliv];
                let counts = codes.map(|code| number(&s.options, code));
                read.statistics.insert((read.sections, s.if_id), counts);
            }
            Block::EnhancedPacket(p) => read.packets.push(Packet {
                interface: p.if_id,
                flags: number(&p.options, OptionCode(2)) as u32,
                original: p.origlen,
                frame: p.packet_data().to_vec(),
            }),
            other => panic!("an unexpected block: {other:?}"),
        }
    }
    read
}

#[test]
fn one_file_holds_what_all_nics_of_a_process_send_and_receive() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("capture");
    let file = folder.file("t.pcapng");
    let (a, b) = pair(own(1), own(2), &capturing(&file));
    write(&a, &b, 5000);
    write(&a, &b, 0);
    drop((a, b));
    let first = read(&file);
    assert_eq!((first.sections, first.interfaces), (1, 2));
    // Each packet twice: it leaves one NIC and reaches the other.
    for (from, to) in [(0, 1), (1, 0)] {
        let of = |interface: u32, flags: u32| {
            let of_it =
                first.packets.iter().filter(move |p| (p.interface, p.flags) == (interface, flags));
            of_it.map(|p| &p.frame).collect::<Vec<_>>()
        };
        let (sent, came) = (of(from, 2), of(to, 1));
        // Last words may reach nobody.
        assert!(sent.starts_with(&came), "{sent:?} {came:?}");
        assert!(came.len() >= if from == 0 { 3 } else { 1 });
        for frame in sent {
            let frame = wire::packet::parse_frame(frame).expect("a frame");
            frame.packet().expect("a right ICRC").expect("a packet");
        }
    }
    let kept: u64 = first
        .statistics
        .values()
        .map(|[seen, lost, kept]| {
            assert_eq!((*seen, *lost), (*kept, 0));
            kept
        })
        .sum();
    assert_eq!((first.statistics.len(), kept), (2, first.packets.len() as u64));
    // The same process goes on in its file, in another section.
    let (a, b) = pair(own(1), own(2), &capturing(&file));
    write(&a, &b, 100);
    drop((a, b));
    let second = read(&file);
    assert_eq!((second.sections, second.interfaces), (2, 4));
    assert!(second.packets.len() > first.packets.len());
    assert_eq!(folder.names(), ["t.pcapng"]);
}

#[test]
fn what_faults_lose_on_arrival_is_captured_in_the_order_in_which_it_came() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("order");
    let file = folder.file("t.pcapng");
    let options = capturing(&file);
    let lossy = Options { faults: Some("loss=10%,seed=3".parse().unwrap()), ..options.clone() };
    let (a, b) = (Side::open_with(own(1), &options, 65536), Side::open_with(own(2), &lossy, 65536));
    a.connect(&b, 12);
    b.connect(&a, 12);
    for _ in 0..20 {
        write(&a, &b, 60_000);
    }
    assert!(b.nic.link_counters().faults_rx_lost > 10);
    drop((a, b));
    let read = read(&file);
    let of = |interface: u32, flags: u32| {
        let packets = read.packets.iter().filter(|p| (p.interface, p.flags) == (interface, flags));
        packets.map(|p| &p.frame).collect::<Vec<_>>()
    };
    let (sent, came) = (of(0, 2), of(1, 1));
    assert!(came.len() > 300, "{} packets", came.len());
    let differs = sent.iter().zip(&came).position(|(sent, came)| sent != came);
    assert_eq!(differs, None, "of {} packets", came.len());
}

#[test]
fn a_file_that_has_something_in_it_is_left_alone_and_packets_are_cut_as_asked() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("capture-other");
    let file = folder.file("t.pcapng");
    std::fs::write(&file, "somebody's").unwrap();
    let options = Options { pcap_snap_len: Some(96), ..capturing(&file) };
    let (a, b) = pair(own(3), own(4), &options);
    write(&a, &b, 4096);
    drop((a, b));
    assert_eq!(std::fs::read(&file).unwrap(), b"somebody's");
    let mine = format!("t.{}.pcapng", std::process::id());
    assert_eq!(folder.names(), [&mine[..], "t.pcapng"]);
    let read = read(&folder.file(&mine));
    assert!(read.packets.iter().all(|p| p.frame.len() <= 96));
    assert!(read.packets.iter().any(|p| p.original > 4096));
}

#[test]
fn what_cannot_be_written_is_told_when_the_nic_is_opened() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let info = live::devices(Some(&own(5).to_string())).unwrap().remove(0);
    for (file, why) in [("/nowhere/t.pcapng", "No such file"), ("-", "mkfifo"), ("/", "directory")]
    {
        let events = std::sync::Arc::new(Events::default());
        let refused = live::Nic::open(&info, &capturing(Path::new(file)), events).err();
        let refused = refused.expect("a refusal");
        assert_eq!(refused.kind(), ErrorKind::System);
        let text = refused.to_string();
        assert!(text.contains(file) && text.contains(why), "{text}");
    }
}

#[test]
fn a_pipe_that_nobody_reads_holds_up_nothing() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("capture-pipe");
    let file = folder.file("t");
    let name = CString::new(file.as_os_str().as_bytes()).unwrap();
    // SAFETY: a path that ends with zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let (a, b) = pair(own(6), own(7), &capturing(&file));
    // More than the buffers hold, so that packets are cut, then left out.
    for _ in 0..700 {
        write(&a, &b, 65536);
    }
    let start = Instant::now();
    drop((a, b));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn a_reader_that_takes_over_a_pipe_begins_at_a_section() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("capture-readers");
    let file = folder.file("t");
    let name = CString::new(file.as_os_str().as_bytes()).unwrap();
    // SAFETY: a path that ends with zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let open = || OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&file);
    // As much as begins with a whole packet.
    let some = |from: &mut File| {
        let (start, mut got) = (Instant::now(), Vec::new());
        loop {
            let mut bytes = [0; 65536];
            match from.read(&mut bytes) {
                Ok(len) => got.extend(&bytes[..len]),
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
            }
            let mut rest = &got[..];
            while let Ok((behind, block)) = parse_block_le(rest) {
                rest = behind;
                if matches!(block, Block::EnhancedPacket(_)) {
                    return got;
                }
            }
            assert!(start.elapsed() < PATIENCE, "no packet in {} bytes", got.len());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let mut reader = open().unwrap();
    let (a, b) = pair(own(12), own(13), &capturing(&file));
    for round in 0..5 {
        write(&a, &b, 100);
        let got = some(&mut reader);
        let first = parse_block_le(&got).expect("a block").1;
        assert!(matches!(first, Block::SectionHeader(_)), "round {round}: {first:?}");
        // What was written meanwhile is read, so that nothing of it is left for the next.
        std::thread::sleep(Duration::from_millis(100));
        while reader.read(&mut [0; 65536]).is_ok_and(|len| len > 0) {}
        // At no time is the pipe without a reader.
        reader = {
            let next = open().unwrap();
            drop(reader);
            next
        };
    }
}

#[test]
fn a_child_of_a_fork_has_a_file_of_its_own() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("capture-fork");
    let options = capturing(&folder.file("t.pcapng"));
    let (a, b) = pair(own(8), own(9), &options);
    write(&a, &b, 1000);
    // SAFETY: the child calls only what this library and the allocator support behind a fork, and
    // ends by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop((a, b));
            let (c, d) = pair(own(10), own(11), &options);
            write(&c, &d, 2000);
            live::flush_all();
        }));
        // SAFETY: ends the child at once, without running anything of the parent's.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    let (start, mut status) = (Instant::now(), 0);
    // SAFETY: writes the status of this process's own child.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > 2 * PATIENCE {
            // SAFETY: ends this process's own child, which has not been waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(status, 0);
    write(&a, &b, 3000);
    drop((a, b));
    assert_eq!(folder.names(), [format!("t.{pid}.pcapng"), "t.pcapng".to_owned()]);
    for name in folder.names() {
        let read = read(&folder.file(&name));
        let kept: u64 = read.statistics.values().map(|s| s[2]).sum();
        assert_eq!((read.sections, kept), (1, read.packets.len() as u64), "{name}");
        assert!(kept >= 2, "{name}");
    }
}
