//! Every bound of the doctor. A host is not an adversary, but a copied directory may hold anything.

/// Bytes of a file that holds one value.
pub const VALUE: usize = 16 << 10;
/// Bytes of a tool's output, and of long files such as `/proc/interrupts`.
pub const OUTPUT: usize = 4 << 20;
/// Bytes that `--record` writes in all.
pub const RECORD: usize = 64 << 20;
/// Files that `--record` writes.
pub const RECORD_FILES: usize = 20_000;
/// Characters of an interface's or device's name.
pub const NAME: usize = 64;
/// Names taken from one directory.
pub const NAMES: usize = 4096;
/// RDMA devices, and ports of each.
pub const DEVICES: usize = 64;
/// Entries of a GID table.
pub const GIDS: usize = 1024;
/// GID entries in a row that are empty before the table counts as ended.
pub const EMPTY_GIDS: usize = 16;
/// Interfaces below a bond or VLAN, and how deep they are followed.
pub const LOWERS: usize = 16;
/// See [`LOWERS`].
pub const DEPTH: usize = 4;
/// Counters of one table.
pub const COUNTERS: usize = 20_000;
/// Processors.
pub const CPUS: usize = 4096;
/// Processors whose frequency governor is read.
pub const GOVERNORS: usize = 1024;
/// Interrupts of one device.
pub const IRQS: usize = 512;
/// Remarks on what was not read.
pub const NOTES: usize = 500;
/// Characters shown of a value that makes no sense.
pub const SHOWN: usize = 40;
