//! Named fields of wire structures, as faults read and change them.

use std::ops::Range;

use super::Field;

/// Something with fields that can be looked at by name.
pub trait Fields {
    /// The field's value; `None` if there is no such field.
    fn field(&self, name: &str) -> Option<u64>;
}

/// Something whose fields can be changed by name.
pub trait FieldsMut: Fields {
    /// Sets a field to the low bits of `value`. Whether there is such a field.
    fn set_field(&mut self, name: &str, value: u64) -> bool;

    /// How many bits the field has; `None` if there is no such field.
    fn field_bits(&self, name: &str) -> Option<u8>;
}

/// Something without fields.
#[derive(Clone, Copy, Debug)]
pub struct NoFields;

impl Fields for NoFields {
    fn field(&self, _name: &str) -> Option<u64> {
        None
    }
}

impl<const N: usize> Fields for [(&str, u64); N] {
    fn field(&self, name: &str) -> Option<u64> {
        self.iter().find(|(field, _)| *field == name).map(|(_, value)| *value)
    }
}

/// Where a field of a wire structure is: some bits of a word of 1 to 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireField {
    name: &'static str,
    offset: usize,
    bytes: u8,
    order: ByteOrder,
    shift: u8,
    bits: u8,
    values: &'static [(&'static str, u64)],
}

/// The order of a word's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ByteOrder {
    Little,
    Big,
}

impl WireField {
    /// The whole word of `bytes` bytes (1 to 8) that starts `offset` bytes into the structure.
    pub const fn new(name: &'static str, offset: usize, bytes: u8, order: ByteOrder) -> WireField {
        assert!(bytes >= 1 && bytes <= 8, "words have 1 to 8 bytes");
        WireField { name, offset, bytes, order, shift: 0, bits: bytes * 8, values: &[] }
    }

    /// A little-endian word.
    pub const fn little(name: &'static str, offset: usize, bytes: u8) -> WireField {
        WireField::new(name, offset, bytes, ByteOrder::Little)
    }

    /// A big-endian word.
    pub const fn big(name: &'static str, offset: usize, bytes: u8) -> WireField {
        WireField::new(name, offset, bytes, ByteOrder::Big)
    }

    /// Only the `bits` bits of the word from bit `shift` up, where bit 0 has the value 1.
    #[must_use]
    pub const fn at_bits(self, shift: u8, bits: u8) -> WireField {
        assert!(bits > 0 && shift + bits <= self.bytes * 8, "bits are within the word");
        WireField { shift, bits, ..self }
    }

    /// Names for some of its values.
    #[must_use]
    pub const fn named(self, values: &'static [(&'static str, u64)]) -> WireField {
        WireField { values, ..self }
    }

    /// The same field of a structure that starts `offset` bytes later.
    #[must_use]
    pub const fn moved(self, offset: usize) -> WireField {
        WireField { offset: self.offset + offset, ..self }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its width.
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// The bytes of the structure that its word takes.
    pub const fn place(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes as usize
    }

    /// What a device tells about it.
    pub fn describe(&self) -> Field {
        Field::new(self.name, self.bits).named(self.values)
    }

    /// Its value in a structure; `None` if the structure is too short.
    pub fn read(&self, structure: &[u8]) -> Option<u64> {
        let word = structure.get(self.place())?;
        Some(self.word(word) >> self.shift & mask(self.bits))
    }

    /// Sets its value in a structure. False if the structure is too short.
    pub fn write(&self, structure: &mut [u8], value: u64) -> bool {
        let Some(word) = structure.get_mut(self.place()) else {
            return false;
        };
        let field = mask(self.bits) << self.shift;
        let value = self.word(word) & !field | value << self.shift & field;
        for (index, byte) in word.iter_mut().enumerate() {
            let place = match self.order {
                ByteOrder::Little => index,
                ByteOrder::Big => usize::from(self.bytes) - 1 - index,
            };
            *byte = (value >> (8 * place)) as u8;
        }
        true
    }

    fn word(&self, bytes: &[u8]) -> u64 {
        let add = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
        match self.order {
            ByteOrder::Little => bytes.iter().rev().fold(0, add),
            ByteOrder::Big => bytes.iter().fold(0, add),
        }
    }
}

/// A wire structure's bytes with the names of its fields.
#[derive(Clone, Copy, Debug)]
pub struct WireView<'a, B> {
    layout: &'a [WireField],
    bytes: B,
}

impl<'a, B> WireView<'a, B> {
    /// `bytes`, laid out as `layout` says.
    pub const fn new(layout: &'a [WireField], bytes: B) -> WireView<'a, B> {
        WireView { layout, bytes }
    }

    fn find(&self, name: &str) -> Option<&'a WireField> {
        self.layout.iter().find(|field| field.name == name)
    }
}

impl<B: AsRef<[u8]>> Fields for WireView<'_, B> {
    fn field(&self, name: &str) -> Option<u64> {
        self.find(name)?.read(self.bytes.as_ref())
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> FieldsMut for WireView<'_, B> {
    fn set_field(&mut self, name: &str, value: u64) -> bool {
        self.find(name).is_some_and(|field| field.write(self.bytes.as_mut(), value))
    }

    fn field_bits(&self, name: &str) -> Option<u8> {
        self.find(name).map(|field| field.bits)
    }
}

/// The low `bits` bits, 1 to 64.
pub(super) const fn mask(bits: u8) -> u64 {
    u64::MAX >> (64 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAYOUT: [WireField; 4] = [
        WireField::little("low", 0, 2).at_bits(0, 11),
        WireField::little("high", 0, 2).at_bits(15, 1),
        WireField::big("word", 2, 4),
        WireField::big("long", 6, 8),
    ];

    #[test]
    fn fields_are_where_the_layout_says() {
        let mut bytes = [0x34, 0xf2, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 9];
        let mut view = WireView::new(&LAYOUT, &mut bytes);
        assert_eq!(view.field("low"), Some(0x234));
        assert_eq!(view.field("high"), Some(1));
        assert_eq!(view.field("word"), Some(0x0001_0203));
        assert_eq!(view.field("long"), Some(9));
        assert_eq!(view.field("absent"), None);
        assert!(view.set_field("high", 0));
        assert!(view.set_field("word", 0xa0b0_c0d0));
        assert!(!view.set_field("absent", 0));
        assert_eq!(bytes[..6], [0x34, 0x72, 0xa0, 0xb0, 0xc0, 0xd0]);
    }

    #[test]
    fn a_field_beyond_the_end_is_absent() {
        let mut view = WireView::new(&LAYOUT, [0; 10]);
        assert_eq!(view.field("long"), None);
        assert!(!view.set_field("long", 1));
    }

    proptest! {
        #[test]
        fn a_field_keeps_what_is_written_and_leaves_the_rest(
            mut structure: [u8; 16], offset in 0..8_usize, bytes in 1..=8_u8, big: bool,
            shift in 0..64_u8, bits in 1..=64_u8, value: u64,
        ) {
            let shift = shift % (bytes * 8);
            let bits = 1 + (bits - 1) % (bytes * 8 - shift);
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let field = WireField::new("f", offset, bytes, order).at_bits(shift, bits);
            let before = structure;
            prop_assert!(field.write(&mut structure, value));
            prop_assert_eq!(field.read(&structure), Some(value & mask(bits)));
            let old = field.read(&before).unwrap();
            prop_assert!(field.write(&mut structure, old));
            prop_assert_eq!(structure, before);
        }
    }
}
