//! Where facts about a host come from: files by their path from the root, and the output of tools.
//! Whoever runs the doctor implements it for the running host; a directory copied from another one
//! holds the tools' output as files, named by [`command_file`]. Nothing here touches either.

use std::fmt;

use crate::limits;

/// Why something was not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unread {
    /// There is no such file.
    Missing,
    /// The reader may not.
    Denied,
    /// The tool is not installed.
    NoTool,
    /// The path leads out of the directory that is looked at.
    Outside,
    /// More bytes than are ever read of a thing of this kind.
    TooLarge(usize),
    /// Not text in UTF-8; the offset of the first byte that is none.
    NotText(usize),
    /// What the system, or the tool, said.
    Failed(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("no such file"),
            Self::Denied => f.write_str("permission denied"),
            Self::NoTool => f.write_str("no such program"),
            Self::Outside => f.write_str("a link that leads out of the directory"),
            Self::TooLarge(limit) => write!(f, "longer than {limit} bytes"),
            Self::NotText(at) => write!(f, "byte {at} is not text, expected UTF-8"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// A host to be looked at. Paths have no leading slash: `sys/class/net/eth0/mtu`.
pub trait Source {
    /// The bytes of a file. One longer than `limit` is [`Unread::TooLarge`].
    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, Unread>;

    /// The names in a directory.
    fn list(&self, dir: &str) -> Result<Vec<String>, Unread>;

    /// What a tool prints. A copied directory has it as a file.
    fn run(&self, command: &[&str]) -> Result<Vec<u8>, Unread> {
        self.read(&command_file(command), limits::OUTPUT).map_err(|why| match why {
            Unread::Missing => Unread::Failed(format!("no file {}", command_file(command))),
            why => why,
        })
    }
}

/// The file that holds a tool's output in a copied directory: `cmd/ethtool_-S_eth0.txt`. What is
/// neither a letter, a digit nor one of `._-` is written as `%` and two hexadecimal digits.
pub fn command_file(command: &[&str]) -> String {
    let mut name = String::from("cmd/");
    for (i, word) in command.iter().enumerate() {
        if i > 0 {
            name.push('_');
        }
        for byte in word.bytes() {
            if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
                name.push(char::from(byte));
            } else {
                name.push_str(&format!("%{byte:02x}"));
            }
        }
    }
    name.push_str(".txt");
    name
}

/// Whether a word can be the name of an interface or a device: nothing that a path or a tool would
/// take for something else.
pub fn is_name(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= limits::NAME
        && !word.starts_with(['-', '.'])
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:@+-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::{command_file, is_name};

    #[test]
    fn commands_have_files() {
        assert_eq!(command_file(&["ethtool", "-S", "eth0"]), "cmd/ethtool_-S_eth0.txt");
        assert_eq!(command_file(&["x", "a/../b"]), "cmd/x_a%2f..%2fb.txt");
    }

    #[test]
    fn names_are_no_paths_and_no_options() {
        for good in ["eth0", "ens1f0np0", "bond0.100", "mlx5_bond_0", "veth1@if3"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "-i", "..", ".", "a/b", "a b", "é", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
