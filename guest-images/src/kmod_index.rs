//! The index files that kmod's `modprobe` reads (`modules.dep.bin`, `modules.alias.bin`): a trie of keys.
//!
//! Layout, all numbers big-endian 32 bit: magic, version, offset of the root node; a node is its prefix (a
//! string ended by 0), then the first and last branching character and an offset for each from first to last,
//! then the number of values and each value's priority and string. Flags in a node's offset say which of the
//! three parts it has. Source: kmod's libkmod-index.

use std::collections::BTreeMap;

/// An index under construction.
#[derive(Debug, Default)]
pub(crate) struct Index {
    root: Node,
    count: u32,
}

#[derive(Debug, Default)]
struct Node {
    children: BTreeMap<u8, Node>,
    values: Vec<(u32, String)>,
}

impl Index {
    /// Adds a value. Among values of one key, earlier ones are found first. Keys are ASCII.
    pub(crate) fn insert(&mut self, key: &str, value: &str) {
        let mut node = &mut self.root;
        for byte in key.bytes().filter(|byte| (1..0x80).contains(byte)) {
            node = node.children.entry(byte).or_default();
        }
        if !node.values.iter().any(|(_, present)| present == value) {
            node.values.push((self.count, value.to_owned()));
            self.count += 1;
        }
    }

    /// The file's bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [MAGIC, VERSION, 0] {
            put(&mut bytes, word);
        }
        let root = self.root.write(&[], &mut bytes);
        bytes[8..12].copy_from_slice(&root.to_be_bytes());
        bytes
    }
}

impl Node {
    /// Appends this node after its children; returns its offset with flags. `prefix` are the characters on the
    /// way to it that need no branching.
    fn write(&self, prefix: &[u8], bytes: &mut Vec<u8>) -> u32 {
        if self.values.is_empty()
            && self.children.len() == 1
            && let Some((&byte, child)) = self.children.first_key_value()
        {
            return child.write(&[prefix, &[byte]].concat(), bytes);
        }
        let children: BTreeMap<u8, u32> =
            self.children.iter().map(|(&byte, child)| (byte, child.write(&[], bytes))).collect();
        let mut offset = bytes.len() as u32;
        if !prefix.is_empty() {
            offset |= HAS_PREFIX;
            bytes.extend_from_slice(prefix);
            bytes.push(0);
        }
        if let (Some((&first, _)), Some((&last, _))) = (children.first_key_value(), children.last_key_value())
        {
            offset |= HAS_CHILDREN;
            bytes.extend_from_slice(&[first, last]);
            for byte in first..=last {
                put(bytes, children.get(&byte).copied().unwrap_or(0));
            }
        }
        if !self.values.is_empty() {
            offset |= HAS_VALUES;
            put(bytes, self.values.len() as u32);
            for (priority, value) in &self.values {
                put(bytes, *priority);
                bytes.extend_from_slice(value.as_bytes());
                bytes.push(0);
            }
        }
        offset
    }
}

fn put(bytes: &mut Vec<u8>, word: u32) {
    bytes.extend_from_slice(&word.to_be_bytes());
}

const MAGIC: u32 = 0xb007_f457;
const VERSION: u32 = 0x0002_0001;
const HAS_PREFIX: u32 = 0x8000_0000;
const HAS_VALUES: u32 = 0x4000_0000;
const HAS_CHILDREN: u32 = 0x2000_0000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads all keys back, as a reader of the format would.
    fn read(bytes: &[u8], offset: u32, key: String, found: &mut Vec<(String, String)>) {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let string =
            |at: usize| bytes[at..].iter().take_while(|&&byte| byte != 0).map(|&byte| byte as char).collect();
        let mut key = key;
        let mut at = (offset & 0x0fff_ffff) as usize;
        if offset & HAS_PREFIX != 0 {
            let prefix: String = string(at);
            at += prefix.len() + 1;
            key.push_str(&prefix);
        }
        let mut children = Vec::new();
        if offset & HAS_CHILDREN != 0 {
            let (first, last) = (bytes[at], bytes[at + 1]);
            at += 2;
            for byte in first..=last {
                children.push((byte, word(at)));
                at += 4;
            }
        }
        if offset & HAS_VALUES != 0 {
            let count = word(at);
            at += 4;
            for _ in 0..count {
                let value: String = string(at + 4);
                at += 5 + value.len();
                found.push((key.clone(), value));
            }
        }
        for (byte, child) in children.into_iter().filter(|(_, child)| *child != 0) {
            read(bytes, child, format!("{key}{}", byte as char), found);
        }
    }

    proptest! {
        #[test]
        fn every_key_is_found_with_its_values(entries in proptest::collection::btree_map("[a-c_:*]{1,6}", "[a-z]{1,8}", 0..30)) {
            let mut index = Index::default();
            for (key, value) in &entries {
                index.insert(key, value);
            }
            let bytes = index.to_bytes();
            prop_assert_eq!(&bytes[..8], b"\xb0\x07\xf4\x57\x00\x02\x00\x01");
            let mut found = Vec::new();
            read(&bytes, u32::from_be_bytes(bytes[8..12].try_into().unwrap()), String::new(), &mut found);
            found.sort();
            let expected: Vec<(String, String)> = entries.into_iter().collect();
            prop_assert_eq!(found, expected);
        }
    }
}
