//! Archives in the "newc" format that the kernel unpacks as its initramfs.
//!
//! Layout: <https://docs.kernel.org/driver-api/early-userspace/buffer-format.html>. The bytes depend on the
//! entries alone: no times, owners or inode numbers of the host get in, and entries are sorted by path.

use std::collections::BTreeMap;

/// A directory tree to be archived. Parents of entries come into being by themselves.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, contents: Vec<u8> },
    Symlink { target: String },
    CharacterDevice { mode: u32, major: u32, minor: u32 },
}

impl Archive {
    /// Adds a directory.
    pub(crate) fn directory(&mut self, path: &str, mode: u32) {
        self.insert(path, Entry::Directory { mode });
    }

    /// Adds a file, in place of an earlier entry of that path.
    pub(crate) fn file(&mut self, path: &str, mode: u32, contents: Vec<u8>) {
        self.insert(path, Entry::File { mode, contents });
    }

    /// Adds a symbolic link.
    pub(crate) fn symlink(&mut self, path: &str, target: &str) {
        self.insert(path, Entry::Symlink { target: target.to_owned() });
    }

    /// Adds the node of a character device.
    pub(crate) fn character_device(&mut self, path: &str, mode: u32, major: u32, minor: u32) {
        self.insert(path, Entry::CharacterDevice { mode, major, minor });
    }

    /// Whether there is an entry at this path.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.entries.contains_key(normalise(path))
    }

    /// What has to be unpacked on top of `base` to get this one. All that `base` has is in this one, too.
    pub(crate) fn on_top_of(&self, base: &Archive) -> Archive {
        let differs = |(path, entry): &(&String, &Entry)| base.entries.get(*path) != Some(entry);
        let entries = self.entries.iter().filter(differs);
        Archive { entries: entries.map(|(path, entry)| (path.clone(), entry.clone())).collect() }
    }

    /// The archive's bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (index, (path, entry)) in self.entries.iter().enumerate() {
            append(&mut bytes, index as u32 + 1, path, entry);
        }
        append(&mut bytes, 0, "TRAILER!!!", &Entry::File { mode: 0, contents: Vec::new() });
        bytes
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        let path = normalise(path);
        for (end, _) in path.match_indices('/') {
            // A parent may be a symbolic link to a directory, which stays.
            self.entries.entry(path[..end].to_owned()).or_insert(Entry::Directory { mode: 0o755 });
        }
        self.entries.insert(path.to_owned(), entry);
    }
}

fn append(bytes: &mut Vec<u8>, inode: u32, path: &str, entry: &Entry) {
    let (mode, contents, device) = match entry {
        Entry::Directory { mode } => (0o040000 | mode, &[][..], (0, 0)),
        Entry::File { mode: 0, contents } => (0, contents.as_slice(), (0, 0)),
        Entry::File { mode, contents } => (0o100000 | mode, contents.as_slice(), (0, 0)),
        Entry::Symlink { target } => (0o120777, target.as_bytes(), (0, 0)),
        Entry::CharacterDevice { mode, major, minor } => (0o020000 | mode, &[][..], (*major, *minor)),
    };
    let links = if matches!(entry, Entry::Directory { .. }) { 2 } else { 1 };
    let fields = [
        inode,
        mode,
        0, // owner
        0, // group
        links,
        0, // modification time
        contents.len() as u32,
        0, // device the file is on
        0,
        device.0,
        device.1,
        path.len() as u32 + 1,
        0, // checksum, not used in this variant
    ];
    bytes.extend_from_slice(b"070701");
    for field in fields {
        bytes.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    bytes.extend_from_slice(path.as_bytes());
    bytes.push(0);
    pad(bytes);
    bytes.extend_from_slice(contents);
    pad(bytes);
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn normalise(path: &str) -> &str {
    path.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_do_not_depend_on_the_order_of_insertion() {
        let mut one = Archive::default();
        one.file("/b/file", 0o644, b"contents".to_vec());
        one.symlink("/a", "b");
        let mut other = Archive::default();
        other.symlink("a", "b");
        other.directory("b", 0o755);
        other.file("b/file", 0o644, b"contents".to_vec());
        assert_eq!(one.to_bytes(), other.to_bytes());
    }

    #[test]
    fn a_header_is_110_bytes_and_everything_is_aligned_to_four() {
        let mut archive = Archive::default();
        archive.file("init", 0o755, b"abcde".to_vec());
        let bytes = archive.to_bytes();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[14..22], b"000081ED");
        assert_eq!(&bytes[54..62], b"00000005");
        assert_eq!(&bytes[110..115], b"init\0");
        assert_eq!(&bytes[116..124], b"abcde\0\0\0");
        assert_eq!(&bytes[124..130], b"070701");
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.windows(11).any(|window| window == b"TRAILER!!!\0"));
    }

    #[test]
    fn a_layer_has_what_is_new_and_what_is_different() {
        let mut base = Archive::default();
        base.file("etc/one", 0o644, b"1".to_vec());
        base.file("etc/two", 0o644, b"2".to_vec());
        let mut whole = Archive::default();
        whole.file("etc/one", 0o644, b"1".to_vec());
        whole.file("etc/two", 0o755, b"2".to_vec());
        whole.file("mnt/three", 0o644, b"3".to_vec());
        let layer = whole.on_top_of(&base);
        assert_eq!(layer.entries.keys().collect::<Vec<_>>(), ["etc/two", "mnt", "mnt/three"]);
        assert!(base.on_top_of(&base).entries.is_empty());
    }

    #[test]
    fn parents_come_before_what_is_in_them() {
        let mut archive = Archive::default();
        archive.file("etc/network/x", 0o644, Vec::new());
        assert!(archive.contains("/etc") && archive.contains("etc/network"));
        let paths: Vec<_> = archive.entries.keys().cloned().collect();
        assert_eq!(paths, ["etc", "etc/network", "etc/network/x"]);
    }
}
