//! The directory that the loader searches first: links to the library under the names that programs
//! ask for. Beside the library if that can be written, else in the user's cache, else in a
//! directory in /tmp that nobody else can write.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::error::{Failure, Result};

/// The name that programs are linked to.
pub(super) const IBVERBS: &str = "libibverbs.so.1";
/// Names of verbs; the unsuffixed one is what NCCL and its kin open first.
const VERBS_NAMES: [&str; 2] = [IBVERBS, "libibverbs.so"];
/// Names of the connection manager's library.
const CM_NAMES: [&str; 2] = ["librdmacm.so.1", "librdmacm.so"];
/// A symbol version that the library has if it serves as librdmacm too.
const CM_VERSION: &[u8] = b"RDMACM_1.0\0";
/// The directory's name beside the library.
const BESIDE: &str = "crocevia-links";

/// The directory of links to `library`, made or brought up to date.
pub(super) fn directory(library: &Path) -> Result<PathBuf> {
    let mut refusals = Vec::new();
    for place in places(library) {
        match prepare(&place, library) {
            Ok(()) => return Ok(place),
            Err(reason) => refusals.push(format!("{}: {reason}", place.display())),
        }
    }
    Err(Failure::failed(format!(
        "no directory for the links to {} could be made; set XDG_CACHE_HOME to one that you can \
         write. Tried {}",
        library.display(),
        refusals.join("; ")
    )))
}

/// Where the directory may be, best first.
fn places(library: &Path) -> Vec<PathBuf> {
    let mut places = vec![library.with_file_name(BESIDE)];
    // Several builds of the library have a directory each, named by the library's own path.
    let name = format!("links-{:016x}", fingerprint(library.as_os_str().as_encoded_bytes()));
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or(absolute("HOME").map(|home| home.join(".cache")));
    places.extend(cache.map(|cache| cache.join("crocevia").join(&name)));
    if let Ok(own) = fs::metadata("/proc/self") {
        places.push(Path::new("/tmp").join(format!("crocevia-{}", own.uid())).join(&name));
    }
    places
}

/// FNV-1a, 64 bits: a name, not a protection.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Makes `dir` and its links; the error says why this place will not do.
fn prepare(dir: &Path, library: &Path) -> std::result::Result<(), String> {
    // The loader splits its lists at these characters and expands the dollar sign.
    if let Some(odd) = dir.as_os_str().as_encoded_bytes().iter().find(|b| b" \t\n:;$".contains(b)) {
        return Err(format!("the loader cannot take a path with {:?}", char::from(*odd)));
    }
    let library_dir = library.parent().unwrap_or(Path::new("/"));
    if dir.parent() != Some(library_dir) {
        make_private(dir.parent().unwrap_or(dir))?;
    }
    make_private(dir)?;
    let serves_cm = contains(library, CM_VERSION)
        .map_err(|error| format!("{} could not be read: {error}", library.display()))?;
    for name in VERBS_NAMES {
        link(&dir.join(name), library).map_err(|error| format!("{name}: {error}"))?;
    }
    for name in CM_NAMES {
        let path = dir.join(name);
        let done = if serves_cm { link(&path, library) } else { unlink(&path) };
        done.map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// Makes a directory that only its owner can write; one that exists must be of that kind.
fn make_private(dir: &Path) -> std::result::Result<(), String> {
    match DirBuilder::new().recursive(false).mode(0o755).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = dir.parent().ok_or_else(|| error.to_string())?;
            make_private(parent)?;
            return make_private(dir);
        }
        Err(error) => return Err(error.to_string()),
        Ok(()) => {}
    }
    let meta = fs::symlink_metadata(dir).map_err(|error| error.to_string())?;
    let own = fs::metadata("/proc/self").map_err(|error| error.to_string())?.uid();
    if !meta.is_dir() {
        return Err("exists and is not a directory".to_owned());
    }
    // Root's directories are as trustworthy as the own ones; whoever can write here could put a
    // library of theirs into the programs that we start.
    if meta.uid() != own && meta.uid() != 0 {
        return Err(format!("belongs to user {}, not to {own}", meta.uid()));
    }
    if meta.permissions().mode() & 0o022 != 0 {
        return Err("others can write it; expected mode 755 or stricter".to_owned());
    }
    Ok(())
}

/// Makes `path` a link to `library`, in one step, so that a program starting now finds one or the
/// other.
fn link(path: &Path, library: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|target| target == library) {
        return Ok(());
    }
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    symlink(library, &fresh)?;
    fs::rename(&fresh, path).inspect_err(|_| {
        let _ = fs::remove_file(&fresh);
    })
}

/// Removes a link that an earlier library left. Looks first: in a place that cannot be written,
/// where nothing is to be done, nothing is to fail.
fn unlink(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    fs::remove_file(path)
}

/// Whether the bytes of `file` contain `needle`.
fn contains(file: &Path, needle: &[u8]) -> io::Result<bool> {
    let bytes = fs::read(file)?;
    Ok(bytes
        .iter()
        .enumerate()
        .filter(|&(_, byte)| *byte == needle[0])
        .any(|(at, _)| bytes[at..].starts_with(needle)))
}
