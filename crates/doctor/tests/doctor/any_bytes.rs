//! Files with anything in them: never a panic, always a report; and what is said of the file.

use doctor::{Asked, Source, Tree, limits};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::host::Edit::Set;
use crate::host::{HOSTS, codes, compared, edit, host, report};

fn files(tree: &Tree) -> Vec<String> {
    tree.files().map(|(path, _)| path.to_owned()).collect()
}

#[track_caller]
fn survives(tree: &Tree) {
    let report = report(tree, &Asked::default());
    assert!(!report.text().is_empty());
    serde_json::to_string(&report).expect("a JSON form");
    compared(&host("cx5-good"), tree).text();
}

#[test]
fn the_same_bytes_in_every_file() {
    let long = "9".repeat(limits::VALUE);
    let contents: &[&[u8]] = &[
        b"",
        b"\n",
        b"\xff\xfe\x00",
        b"-1\n",
        b"18446744073709551615\n",
        b"99999999999999999999999999\n",
        b"0\n",
        b"nan inf -inf 1e999\n",
        b"prio:0 dscp:99, tc: 9 tsa: ets, bw: 999999999999%\nenabled 9 9 9 9 9 9 9 9\n",
        b"a: b: c: d:\n: : :\n::ffff:1.2.3.4\n0-4095,4095-0\n",
        long.as_bytes(),
    ];
    for name in HOSTS {
        let original = host(name);
        for bytes in contents {
            let mut tree = original.clone();
            for path in files(&original) {
                tree.set(&path, *bytes);
            }
            survives(&tree);
        }
    }
}

#[test]
fn every_file_cut_in_the_middle_of_it() {
    for name in HOSTS {
        let original = host(name);
        for part in [3, 2] {
            let mut tree = original.clone();
            for (path, bytes) in original.files() {
                tree.set(path, &bytes[..bytes.len() / part]);
            }
            survives(&tree);
        }
    }
}

#[test]
fn a_file_that_makes_no_sense_is_named_with_what_was_expected() {
    let mut tree = host("cx5-good");
    let mtu = "sys/class/net/ens1f0np0/mtu";
    edit(&mut tree, &[Set("sys/class/net/ens1f0np0/mtu", "many\u{7}\n")]);
    let told = report(&tree, &Asked::default());
    let note = told.not_read.iter().find(|note| note.what == format!("/{mtu}")).expect("a remark");
    assert_eq!(note.why, "found \"many\\u{7}\", expected an MTU in bytes");
    assert_eq!(codes(&told), [""; 0]);

    tree.set(mtu, vec![b'1'; limits::VALUE + 1]);
    let told = report(&tree, &Asked::default());
    assert!(told.not_read.iter().any(|note| note.why == "longer than 16384 bytes"), "{told:?}");

    tree.set(mtu, &b"15\xff"[..]);
    let told = report(&tree, &Asked::default());
    let why = "byte 2 is not text, expected UTF-8";
    assert!(told.not_read.iter().any(|note| note.why == why), "{told:?}");
}

#[test]
fn names_in_files_are_not_taken_for_paths_or_options() {
    struct Watched<'a>(&'a Tree);
    impl Source for Watched<'_> {
        fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, doctor::Unread> {
            assert!(!path.split('/').any(|part| part == ".." || part.is_empty()), "{path}");
            self.0.read(path, limit)
        }
        fn list(&self, dir: &str) -> Result<Vec<String>, doctor::Unread> {
            self.0.list(dir)
        }
        fn run(&self, command: &[&str]) -> Result<Vec<u8>, doctor::Unread> {
            assert!(command.iter().all(|word| !word.contains('/')), "{command:?}");
            assert!(!command.contains(&"-rf"), "{command:?}");
            self.0.run(command)
        }
    }
    let mut tree = host("ionic-bond");
    edit(
        &mut tree,
        &[
            Set("sys/class/net/bond0/bonding/slaves", "../../../etc -rf a/b\n"),
            Set("sys/class/infiniband/ionic_0/ports/1/gid_attrs/ndevs/0", "../x\n"),
            Set("sys/class/infiniband/ionic_0/ports/1/gid_attrs/ndevs/1", "-rf\n"),
        ],
    );
    doctor::Host::gather(&Watched(&tree), &Asked::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_bytes_in_some_files(
        which in 0..HOSTS.len(),
        changes in vec((any::<Index>(), vec(any::<u8>(), 0..200)), 1..40),
    ) {
        let mut tree = host(HOSTS[which]);
        let paths = files(&tree);
        for (path, bytes) in changes {
            tree.set(&paths[path.index(paths.len())], bytes);
        }
        survives(&tree);
    }

    #[test]
    fn any_byte_changed_in_the_output_of_tools(
        which in 0..HOSTS.len(),
        changes in vec((any::<Index>(), any::<Index>(), 0x20u8..0x7f), 1..60),
    ) {
        let mut tree = host(HOSTS[which]);
        let tools: Vec<String> =
            files(&tree).into_iter().filter(|path| path.starts_with("cmd/")).collect();
        for (path, at, byte) in changes {
            let path = &tools[path.index(tools.len())];
            let mut bytes = tree.get(path).expect("a file").to_vec();
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
                tree.set(path, bytes);
            }
        }
        survives(&tree);
    }

    #[test]
    fn any_bytes_in_every_file(
        which in 0..HOSTS.len(),
        pool in vec(any::<u8>(), 4096),
        words in vec("[ -~]{0,12}[ :,\n-]", 400),
        step in 1usize..97,
    ) {
        let original = host(HOSTS[which]);
        let (mut raw, mut text) = (original.clone(), original.clone());
        for (i, path) in files(&original).iter().enumerate() {
            let at = i * step % 4000;
            raw.set(path, &pool[at..at + i * 7 % 96]);
            let at = i * step % 380;
            text.set(path, words[at..at + i % 20].concat());
        }
        survives(&raw);
        survives(&text);
    }
}
