//! Addresses to names, for backtraces.

use std::fmt;

use object::{Object, ObjectSection, ObjectSymbol, SectionKind};

/// The symbols of a kernel, sorted by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    entries: Vec<Entry>,
    names: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    address: u64,
    name: u32,
    code: bool,
}

/// A place in the code: a symbol and how far behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The symbol's name.
    pub name: &'a str,
    /// Distance from the symbol.
    pub offset: u64,
    /// Distance from the symbol to the next one.
    pub size: u64,
    /// Whether it is code.
    pub code: bool,
}

impl fmt::Display for Symbol<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}+{:#x}/{:#x}", self.name, self.offset, self.size)
    }
}

impl Symbols {
    /// Symbols from address, name and whether it is code, in any order. Of several names for one address the
    /// first is kept.
    pub fn new<'a>(symbols: impl IntoIterator<Item = (u64, &'a str, bool)>) -> Symbols {
        let mut table = Symbols::default();
        for (address, name, code) in symbols {
            // Names are kept with a length byte in front; longer ones are cut, they only go into messages.
            let length = name.floor_char_boundary(255);
            table.entries.push(Entry { address, name: table.names.len() as u32, code });
            table.names.push(length as u8);
            table.names.extend(&name.as_bytes()[..length]);
        }
        table.entries.sort_by_key(|entry| entry.address);
        table.entries.dedup_by_key(|entry| entry.address);
        table
    }

    /// Reads a `System.map` file: lines of address, type and name. Lines of another form are skipped.
    pub fn from_system_map(text: &str) -> Symbols {
        Symbols::new(text.lines().filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let address = u64::from_str_radix(fields.next()?, 16).ok()?;
            let kind = fields.next().filter(|kind| kind.len() == 1)?.chars().next()?;
            is_place(kind).then_some((address, fields.next()?, is_code(kind)))
        }))
    }

    /// Reads the symbol table of an ELF file; empty when it has none.
    pub(super) fn from_elf(file: &[u8]) -> Symbols {
        let Ok(object) = object::File::parse(file) else { return Symbols::default() };
        Symbols::new(object.symbols().filter_map(|symbol| {
            let name = symbol.name().ok().filter(|name| !name.is_empty())?;
            let section = object.section_by_index(symbol.section_index()?).ok()?;
            symbol.is_definition().then_some((symbol.address(), name, section.kind() == SectionKind::Text))
        }))
    }

    /// The symbol that `address` lies in.
    pub fn resolve(&self, address: u64) -> Option<Symbol<'_>> {
        let next = self.entries.partition_point(|entry| entry.address <= address);
        let entry = self.entries.get(next.checked_sub(1)?)?;
        let end = self.entries.get(next).map_or(u64::MAX, |entry| entry.address);
        let size = (end - entry.address).min(LONGEST_SYMBOL);
        let offset = address - entry.address;
        (offset < size).then(|| Symbol { name: self.name(entry), offset, size, code: entry.code })
    }

    /// The address of `name`.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.entries.iter().find(|entry| self.name(entry) == name).map(|entry| entry.address)
    }

    /// The same symbols in a kernel that runs `offset` above where it was linked.
    #[must_use]
    pub fn relocated(mut self, offset: u64) -> Symbols {
        for entry in &mut self.entries {
            entry.address = entry.address.wrapping_add(offset);
        }
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    fn name(&self, entry: &Entry) -> &str {
        let at = entry.name as usize;
        let bytes = &self.names[at + 1..at + 1 + usize::from(self.names[at])];
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

/// Whether a symbol of this type (as `nm` prints it) is a place in memory: absolute symbols include offsets into
/// the per-CPU area.
pub(super) fn is_place(kind: char) -> bool {
    !matches!(kind, 'a' | 'A' | 'U')
}

/// Whether a symbol of this type is code.
pub(super) fn is_code(kind: char) -> bool {
    matches!(kind, 't' | 'T' | 'w' | 'W')
}

/// No symbol is longer: what is further behind one is in no symbol.
const LONGEST_SYMBOL: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_resolve_to_the_symbol_before_them() {
        let map = "ffffffff81000000 T startup_64\nffffffff81000100 t helper\n000000000001f000 A gdt_page\n\
                   ffffffff81000100 t helper.alias\nnot a line\n";
        let symbols = Symbols::from_system_map(map);
        assert_eq!(symbols.len(), 2);
        let resolve = |address| symbols.resolve(address).map(|symbol| symbol.to_string());
        assert_eq!(resolve(0xffff_ffff_8100_00ff).unwrap(), "startup_64+0xff/0x100");
        assert_eq!(resolve(0xffff_ffff_8100_0104).unwrap(), "helper+0x4/0x100000");
        assert_eq!(resolve(0xffff_ffff_80ff_ffff), None);
        assert_eq!(resolve(0xffff_ffff_8200_0000), None);
        assert_eq!(symbols.address("helper"), Some(0xffff_ffff_8100_0100));
        let moved = symbols.relocated(0x1000);
        assert_eq!(moved.resolve(0xffff_ffff_8100_1000).unwrap().name, "startup_64");
    }
}
