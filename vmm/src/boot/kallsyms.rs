//! The compressed symbol table that a Linux kernel carries for its own backtraces, found in the image without
//! the help of symbols. Layout: scripts/kallsyms.c of the kernel.
//!
//! The tables have no header. In order, each at a multiple of eight:
//! `num_syms` (u32), `names` (per symbol: a length in one or two bytes, then token numbers), `markers` (u32
//! offset into `names` of every 256th symbol), `token_table` (256 zero-terminated strings), `token_index` (u16
//! offset of each token). `offsets` (i32 per symbol) and `relative_base` (u64) follow from 6.4 on; before that
//! they precede `num_syms`. The way in is the token table, where the digits stand for themselves.

use std::ops::Range;

use super::Symbols;
use super::elf::Elf;
use super::symbols::{is_code, is_place};

/// Decodes the tables of the vmlinux in `file`; `None` when there are none or they look unlike the above.
pub(super) fn decode(file: &[u8], elf: &Elf) -> Option<Symbols> {
    let tables = Tables::find(file)?;
    let code: Vec<Range<u64>> = elf
        .segments
        .iter()
        .map(|segment| segment.linked..segment.linked.saturating_add(segment.size))
        .collect();
    let addresses = tables.addresses(file, &code)?;
    let mut names = Vec::with_capacity(tables.count);
    let mut at = tables.names;
    for _ in 0..tables.count {
        let (tokens, next) = symbol_tokens(file, at)?;
        let mut name: Vec<u8> = Vec::with_capacity(32);
        for token in &file[tokens] {
            name.extend(tables.token(file, *token)?);
        }
        names.push(String::from_utf8(name).ok()?);
        at = next;
    }
    // The first character of each name is the symbol's type.
    let symbols = addresses.iter().zip(&names).filter_map(|(address, name)| {
        let kind = name.chars().next()?;
        is_place(kind).then(|| (*address, &name[kind.len_utf8()..], is_code(kind)))
    });
    Some(Symbols::new(symbols))
}

/// Where the tables start in the file.
struct Tables {
    count: usize,
    names: usize,
    token_table: usize,
    token_index: usize,
}

impl Tables {
    fn find(file: &[u8]) -> Option<Tables> {
        memchr::memmem::find_iter(file, DIGIT_TOKENS).find_map(|digits| Tables::around(file, digits))
    }

    /// The tables whose token table has its digits at `digits`.
    fn around(file: &[u8], digits: usize) -> Option<Tables> {
        let (token_table, token_index) =
            (digits.next_multiple_of(ALIGN)..digits + LONGEST_TOKEN_TABLE).step_by(ALIGN).find_map(|at| {
                let zero = u16_at(file, at + 2 * usize::from(b'0'))?;
                // The pattern starts one byte before the digit.
                let start = (digits + 1).checked_sub(usize::from(zero))?;
                let ordered = u16_at(file, at)? == 0
                    && (1..256).all(|token| {
                        let [previous, offset] = [token - 1, token].map(|token| u16_at(file, at + 2 * token));
                        previous < offset
                            && offset
                                .is_some_and(|offset| file.get(start + usize::from(offset) - 1) == Some(&0))
                    });
                ordered.then_some((start, at))
            })?;
        let markers = markers_before(file, token_table)?;
        let marker_count = (token_table - markers) / 4;
        // The names end right before the markers; the count of symbols and the markers must agree with them.
        let last =
            u32_at(file, token_table - 4).filter(|last| *last != 0).or(u32_at(file, token_table - 8))?;
        let nearest = markers.checked_sub(last as usize)? & !(ALIGN - 1);
        let names = (nearest.saturating_sub(LONGEST_BLOCK)..=nearest).rev().step_by(ALIGN).find(|names| {
            let count = names.checked_sub(8).and_then(|at| u32_at(file, at)).unwrap_or(0) as usize;
            // Padding looks like one marker more.
            [count.div_ceil(256), count.div_ceil(256) + 1].contains(&marker_count)
                && names_agree(file, *names, markers, count)
        })?;
        Some(Tables { count: u32_at(file, names - 8)? as usize, names, token_table, token_index })
    }

    /// The string that a token number stands for.
    fn token<'a>(&self, file: &'a [u8], token: u8) -> Option<&'a [u8]> {
        let start = self.token_table + usize::from(u16_at(file, self.token_index + 2 * usize::from(token))?);
        let text = file.get(start..)?;
        text.get(..text.iter().position(|byte| *byte == 0)?)
    }

    /// The symbols' addresses. Most must lie in `code`, else the table is of another form.
    fn addresses(&self, file: &[u8], code: &[Range<u64>]) -> Option<Vec<u64>> {
        let length = (4 * self.count).next_multiple_of(ALIGN);
        let behind = self.token_index + 512;
        let before = (self.names - 8).checked_sub(8 + length);
        // From 6.4: offsets, then the base. Earlier: the same two in front of the count.
        [Some(behind), before].into_iter().flatten().find_map(|offsets| {
            let base = u64_at(file, offsets + length)?;
            let values: Vec<i32> = (0..self.count)
                .map(|index| u32_at(file, offsets + 4 * index).map(u32::cast_signed))
                .collect::<Option<_>>()?;
            let negated = |value: i32| {
                if value >= 0 { value as u64 } else { base.wrapping_sub(1).wrapping_sub(value as u64) }
            };
            let plain = |value: i32| base.wrapping_add(u64::from(value.cast_unsigned()));
            let forms: [&dyn Fn(i32) -> u64; 2] = [&negated, &plain];
            forms.into_iter().find_map(|form| {
                let addresses: Vec<u64> = values.iter().map(|value| form(*value)).collect();
                let inside = addresses.iter().filter(|at| code.iter().any(|code| code.contains(at))).count();
                (inside > self.count / 2 && addresses.is_sorted()).then_some(addresses)
            })
        })
    }
}

/// Start of the ascending offsets that end at `end`, perhaps with four bytes of padding.
fn markers_before(file: &[u8], end: usize) -> Option<usize> {
    let mut at = end.checked_sub(4)?;
    if u32_at(file, at)? == 0 {
        at -= 4;
    }
    loop {
        let value = u32_at(file, at)?;
        if value == 0 {
            return at.is_multiple_of(ALIGN).then_some(at);
        }
        let previous = at.checked_sub(4)?;
        if u32_at(file, previous)? >= value {
            return None;
        }
        at = previous;
    }
}

/// Whether the `count` names at `names` have a marker at every 256th.
fn names_agree(file: &[u8], names: usize, markers: usize, count: usize) -> bool {
    let mut at = names;
    for symbol in 0..count {
        let marker = || u32_at(file, markers + symbol / 64).map(|offset| names + offset as usize);
        if symbol % 256 == 0 && marker() != Some(at) {
            return false;
        }
        match symbol_tokens(file, at) {
            Some((_, next)) => at = next,
            None => return false,
        }
    }
    // Nothing but padding lies between the last name and the markers.
    at <= markers && markers - at < ALIGN
}

/// The token numbers of the symbol whose entry is at `at`, and where the next entry is.
fn symbol_tokens(file: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    let first = usize::from(*file.get(at)?);
    let (length, start) = if first < 0x80 {
        (first, at + 1)
    } else {
        (first & 0x7f | usize::from(*file.get(at + 1)?) << 7, at + 2)
    };
    (start + length <= file.len()).then_some((start..start + length, start + length))
}

fn u16_at(file: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*file.get(at..)?.first_chunk()?))
}

fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*file.get(at..)?.first_chunk()?))
}

fn u64_at(file: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*file.get(at..)?.first_chunk()?))
}

const DIGIT_TOKENS: &[u8] = b"\x000\x001\x002\x003\x004\x005\x006\x007\x008\x009\0";
const ALIGN: usize = 8;
/// More than 256 tokens ever take.
const LONGEST_TOKEN_TABLE: usize = 1 << 14;
/// More than 256 symbols ever take.
const LONGEST_BLOCK: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::super::elf::testing::elf64;
    use super::*;

    const TEXT: u64 = 0xffff_ffff_8100_0000;

    /// A symbol every 32 bytes; one of them has a name that needs two bytes of length, some are absolute.
    fn symbols() -> Vec<(u64, String)> {
        (0..700_u64)
            .map(|index| match index {
                0..3 => (8 * index, format!("Apercpu_{index}")),
                300 => (TEXT + 32 * index, format!("t{}", "long_".repeat(40))),
                index if index % 7 == 0 => (TEXT + 32 * index, format!("ddata_{index}")),
                _ => (TEXT + 32 * index, format!("tfunction_{index}")),
            })
            .collect()
    }

    fn align(image: &mut Vec<u8>) {
        image.resize(image.len().next_multiple_of(ALIGN), 0);
    }

    fn offsets(symbols: &[(u64, String)]) -> Vec<u8> {
        let offset = |address: u64| {
            if address < TEXT { address as i32 } else { (TEXT - 1).wrapping_sub(address) as i32 }
        };
        let mut table: Vec<u8> =
            symbols.iter().flat_map(|(address, _)| offset(*address).to_le_bytes()).collect();
        align(&mut table);
        table.extend(TEXT.to_le_bytes());
        table
    }

    /// The tables as the kernel build writes them: `new` with the offsets at the end.
    fn tables(symbols: &[(u64, String)], new: bool) -> Vec<u8> {
        let mut image = b"something else\0\0".to_vec();
        if !new {
            image.extend(offsets(symbols));
        }
        image.extend((symbols.len() as u32).to_le_bytes());
        align(&mut image);
        let mut markers = Vec::new();
        let names = image.len();
        for (index, (_, name)) in symbols.iter().enumerate() {
            if index % 256 == 0 {
                markers.extend(((image.len() - names) as u32).to_le_bytes());
            }
            match name.len() {
                length @ ..0x80 => image.push(length as u8),
                length => image.extend([length as u8 | 0x80, (length >> 7) as u8]),
            }
            image.extend(name.as_bytes());
        }
        align(&mut image);
        image.extend(markers);
        align(&mut image);
        let mut index = Vec::new();
        let token_table = image.len();
        for token in 0..=255_u8 {
            index.extend(((image.len() - token_table) as u16).to_le_bytes());
            if token.is_ascii_graphic() {
                image.push(token);
            }
            image.push(0);
        }
        align(&mut image);
        image.extend(index);
        if new {
            image.extend(offsets(symbols));
        }
        image
    }

    fn decode_image(image: &[u8]) -> Option<Symbols> {
        let mut file = elf64(62, 0x100_0000, image);
        // The segment's link address, and room in memory for all symbols.
        file[80..88].copy_from_slice(&TEXT.to_le_bytes());
        file[104..112].copy_from_slice(&(1_u64 << 20).to_le_bytes());
        decode(&file, &Elf::parse(&file).unwrap())
    }

    #[test]
    fn both_orders_of_the_tables_are_decoded() {
        for new in [true, false] {
            let found = decode_image(&tables(&symbols(), new)).unwrap();
            assert_eq!(found.len(), 697, "absolute symbols are left out");
            let symbol = found.resolve(TEXT + 32 * 255 + 4).unwrap();
            assert_eq!((symbol.name, symbol.offset, symbol.size, symbol.code), ("function_255", 4, 32, true));
            assert!(!found.resolve(TEXT + 32 * 14).unwrap().code);
            assert_eq!(found.resolve(TEXT + 32 * 300).unwrap().name, "long_".repeat(40));
        }
    }

    #[test]
    fn damaged_tables_give_no_symbols_rather_than_wrong_ones() {
        let whole = tables(&symbols(), true);
        assert!(decode_image(&whole[..whole.len() - 9]).is_none());
        assert!(decode_image(&whole[..whole.len() / 2]).is_none());
        let mut other = whole;
        // The length of the first name, behind the count.
        other[24] = 0x7f;
        assert!(decode_image(&other).is_none());
        assert!(decode_image(b"no tables at all").is_none());
    }
}
