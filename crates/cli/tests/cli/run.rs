//! `crocevia run`: what the program finds in its environment, exit codes, and each way it can fail.
//! The library is a stand-in (any shared object loads): what is tested is the launcher.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{command, copy_program, fail, output, stderr, stdout, succeed};

/// The binary in a directory of its own, with or without a library beside it.
struct Place {
    dir: tempfile::TempDir,
    bin: PathBuf,
}

const LIBRARY: &str = "libcrocevia_ibverbs.so";

impl Place {
    fn new(subdir: &str, library: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let bin = dir.path().canonicalize().expect("a path").join(subdir);
        fs::create_dir_all(&bin).expect("a directory");
        copy_program(env!("CARGO_BIN_EXE_crocevia"), &bin.join("crocevia"));
        if library {
            fs::copy(some_library(), bin.join(LIBRARY)).expect("a copy");
        }
        Self { dir, bin }
    }

    fn run(&self, arguments: &[&str]) -> std::process::Command {
        let mut all = vec!["run"];
        all.extend(arguments);
        let mut command = command(self.bin.join("crocevia").as_os_str(), &all);
        command.env("XDG_CACHE_HOME", self.cache()).env_remove("LD_LIBRARY_PATH");
        command
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().canonicalize().expect("a path").join("cache")
    }
}

/// A shared object that this test itself is linked to.
fn some_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("maps");
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let path = path.into_iter().find(|path| path.contains("libgcc_s.so"));
    PathBuf::from(path.expect("libgcc_s is mapped"))
}

fn links_to(links: &Path, library: &Path) {
    for name in ["libibverbs.so.1", "libibverbs.so"] {
        assert_eq!(fs::read_link(links.join(name)).expect("a link"), library);
    }
}

#[test]
fn the_program_gets_library_address_and_faults() {
    let place = Place::new("bin", true);
    let print = "echo $LD_LIBRARY_PATH; echo $LD_PRELOAD; echo $CROCEVIA_ADDR $CROCEVIA_FAULTS";
    let faults = "loss=1%,dup=0.1%,reorder=2%,corrupt=0.01%,seed=42";
    let arguments = ["--addr", "127.0.0.9", "--faults", faults, "--", "sh", "-c", print];
    let text = succeed(&mut place.run(&arguments));
    let links = place.bin.join("crocevia-links");
    let preload = links.join("libibverbs.so.1");
    let expected = format!("{}\n{}\n127.0.0.9 {faults}\n", links.display(), preload.display());
    assert_eq!(text, expected);
    links_to(&links, &place.bin.join(LIBRARY));
    // The stand-in does not serve as the connection manager's library.
    assert!(!links.join("librdmacm.so.1").exists());
    // A second run finds everything in place.
    assert_eq!(succeed(&mut place.run(&arguments)), expected);
}

#[test]
fn a_library_with_the_connection_manager_gets_its_links() {
    let place = Place::new("bin", true);
    let library = place.bin.join(LIBRARY);
    let plain = fs::read(&library).expect("a library");
    // The name of the symbol version is what counts; behind the sections the loader ignores it.
    fs::write(&library, [plain.as_slice(), b"\0RDMACM_1.0\0"].concat()).expect("a library");
    succeed(&mut place.run(&["--", "true"]));
    let link = place.bin.join("crocevia-links/librdmacm.so.1");
    assert_eq!(fs::read_link(&link).expect("a link"), library);
    // An older library in its place has none.
    fs::write(&library, plain).expect("a library");
    succeed(&mut place.run(&["--", "true"]));
    assert!(fs::symlink_metadata(&link).is_err());
}

#[test]
fn what_was_set_before_stays_behind() {
    let place = Place::new("bin", true);
    let inner = format!("{}/crocevia", place.bin.display());
    let print = "echo $LD_LIBRARY_PATH; echo $LD_PRELOAD";
    // Nested, each of ours is there once.
    let mut command = place.run(&["--", &inner, "run", "--", "sh", "-c", print]);
    let text = succeed(command.env("LD_LIBRARY_PATH", "/somewhere:/else"));
    let links = place.bin.join("crocevia-links");
    let expected = format!("{0}:/somewhere:/else\n{0}/libibverbs.so.1\n", links.display());
    assert_eq!(text, expected);
}

#[test]
fn the_program_takes_the_launchers_place() {
    let place = Place::new("bin", true);
    let child = place
        .run(&["--", "sh", "-c", "echo $$; exit 7"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let pid = child.id();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(stdout(&output).trim(), pid.to_string());
}

#[test]
fn arguments_pass_as_they_are() {
    let place = Place::new("bin", true);
    let text = succeed(&mut place.run(&["--", "printf", "%s|", "a b", "--", "-x", ""]));
    assert_eq!(text, "a b|--|-x||");
    // Two dashes before the program may be left out; its own stay.
    let text = succeed(&mut place.run(&["printf", "%s|", "--faults", "--", "-h"]));
    assert_eq!(text, "--faults|--|-h|");
}

#[test]
fn an_installation_has_its_library_elsewhere() {
    let place = Place::new("bin", false);
    let lib = place.dir.path().canonicalize().expect("a path").join("lib/crocevia");
    fs::create_dir_all(&lib).expect("a directory");
    fs::copy(some_library(), lib.join(LIBRARY)).expect("a copy");
    let text = succeed(&mut place.run(&["--", "sh", "-c", "echo $LD_LIBRARY_PATH"]));
    assert_eq!(text.trim(), lib.join("crocevia-links").display().to_string());
}

#[test]
fn a_place_that_will_not_do_is_passed_over() {
    // The loader splits at spaces.
    let spaced = Place::new("a bin", true);
    // Whoever can write the directory could put a library there.
    let open = Place::new("bin", true);
    let links = open.bin.join("crocevia-links");
    fs::create_dir(&links).expect("a directory");
    fs::set_permissions(&links, fs::Permissions::from_mode(0o777)).expect("permissions");
    for place in [spaced, open] {
        let text = succeed(&mut place.run(&["--", "sh", "-c", "echo $LD_LIBRARY_PATH"]));
        let links = PathBuf::from(text.trim());
        assert!(links.starts_with(place.cache().join("crocevia")), "{text}");
        links_to(&links, &place.bin.join(LIBRARY));
        let mode = links.metadata().expect("a directory").permissions().mode();
        assert_eq!(mode & 0o022, 0, "{mode:o}");
    }
}

#[test]
fn a_program_that_is_not_there_is_127() {
    let place = Place::new("bin", true);
    let not_found = ["nosuch-program", "command not found in PATH"];
    fail(&mut place.run(&["--", "nosuch-program"]), 127, &not_found);
    fail(&mut place.run(&["--", "./nosuch"]), 127, &["./nosuch", "no such file"]);
}

#[test]
fn an_option_that_is_none_is_told_as_such() {
    let place = Place::new("bin", true);
    let parts = ["--fault is no option", "crocevia run --help"];
    fail(&mut place.run(&["--fault", "loss=1%", "--", "true"]), 2, &parts);
    fail(&mut place.run(&["--addr"]), 2, &["--addr <ADDR>"]);
}

#[test]
fn a_program_that_does_not_start_is_126() {
    let place = Place::new("bin", true);
    let script = place.bin.join("script");
    fs::write(&script, "#!/nosuch/interpreter\n").expect("a script");
    let script = script.display().to_string();
    fail(&mut place.run(&["--", &script]), 126, &[&script, "may not be executed", "chmod +x"]);
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("permissions");
    fail(&mut place.run(&["--", &script]), 126, &[&script, "interpreter", "#!"]);
    fail(&mut place.run(&["--", "/"]), 126, &["is a directory"]);
}

#[test]
fn a_missing_library_says_how_to_build_it() {
    let place = Place::new("bin", false);
    fail(
        &mut place.run(&["--", "true"]),
        1,
        &[LIBRARY, "was not found", "cargo build --release -p crocevia-cabi"],
    );
}

#[test]
fn bad_faults_name_field_value_and_expectation() {
    let place = Place::new("bin", true);
    let parts = ["--faults", "loss", "`lots`", "expected"];
    fail(&mut place.run(&["--faults", "loss=lots", "--", "true"]), 2, &parts);
    let mut command = place.run(&["--", "true"]);
    let parts = ["CROCEVIA_FAULTS", "speed"];
    fail(command.env("CROCEVIA_FAULTS", "speed=1"), 2, &parts);
}

#[test]
fn an_unknown_address_is_told_before_the_program_starts() {
    let place = Place::new("bin", true);
    let mut command = place.run(&["--addr", "203.0.113.77", "--", "echo", "started"]);
    fail(&mut command, 1, &["203.0.113.77", "lo", "127.0.0.1"]);
}

#[test]
fn a_capture_that_cannot_be_written_is_told_before_the_program_starts() {
    let place = Place::new("bin", true);
    let run = |file: &str| place.run(&["--pcap", file, "--", "echo", "started"]);
    fail(&mut run("/nowhere/t.pcapng"), 1, &["/nowhere/t.pcapng", "No such file"]);
    fail(&mut run("/proc"), 1, &["cannot capture to /proc", "directory"]);
    fail(&mut run("-"), 1, &["standard output", "mkfifo"]);
    fail(&mut run(""), 2, &["--pcap", "a value is required"]);
    let mut by_environment = place.run(&["--", "echo", "started"]);
    fail(by_environment.env("CROCEVIA_PCAP", "/nowhere/%p.pcapng"), 1, &["/nowhere/"]);
}

#[test]
fn a_capture_begins_anew_and_its_name_does_not_depend_on_the_directory() {
    let place = Place::new("bin", true);
    let file = place.bin.join("t.pcapng");
    fs::write(&file, "an earlier one").expect("a file");
    let mut command = place.run(&["--pcap", "t.pcapng", "--", "sh", "-c", "echo $CROCEVIA_PCAP"]);
    let output = output(command.current_dir(&place.bin));
    assert!(output.status.success(), "{}", stderr(&output));
    let here = file.parent().and_then(|dir| dir.canonicalize().ok()).expect("a directory");
    let named = PathBuf::from(stdout(&output).trim());
    assert_eq!(named.file_name(), file.file_name());
    assert_eq!(named.parent().and_then(|dir| dir.canonicalize().ok()), Some(here));
    assert_eq!(fs::metadata(&file).expect("the file").len(), 0);
    // With the process's number in it, the name is only tried.
    let mut command = place.run(&["--pcap", "u-%p.pcapng", "--", "true"]);
    assert!(command.current_dir(&place.bin).status().expect("it starts").success());
    let left = fs::read_dir(&place.bin).expect("the directory").flatten();
    assert!(left.into_iter().all(|e| !e.file_name().to_string_lossy().starts_with("u-")));
}

#[test]
fn a_set_user_id_program_is_warned_of() {
    let place = Place::new("bin", true);
    let program = place.bin.join("copy-of-true");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("true")).find(|p| p.is_file());
    copy_program(&found.expect("true").display().to_string(), &program);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("permissions");
    let output = output(&mut place.run(&["--", &program.display().to_string()]));
    assert!(output.status.success());
    assert!(stderr(&output).contains("set-user-ID"), "{}", stderr(&output));
}
